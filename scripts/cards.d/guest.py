"""A guest with cards, in software emulation, and the host's side of their cables: TAPs in a network namespace."""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from patience import Clock
from words import Failure

# QEMU's devices.
DRIVERS = {"igb": "igb", "e1000e": "e1000e", "vmxnet3": "vmxnet3", "virtio": "virtio-net-pci", "vlan": "igb"}
# A second igb, whose cable carries frames of one VLAN; this host's kernel may have none, so a program tags them.
VLAN = "vlan"
RELAY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vlan.py")
# What virtio needs for AF_XDP without a copy: it maps memory that is not its own behind an IOMMU alone.
# And for several queues, over which it spreads frames as it is told (VIRTIO_NET_F_RSS).
OPTIONS = {"virtio": {"disable-legacy": "on", "iommu_platform": True, "ats": True, "mq": True, "rss": True}}
# Pairs of queues of a cable, by card: the driver of virtio-net takes one for each processor, and as many again for AF_XDP.
CABLE_QUEUES = {"virtio": 4}
# By the clock of patience.py: on a busy machine it is the guest that waits.
BOOT_SECONDS = 300
ANSWER_SECONDS = 60
HEARD_SECONDS = 10
# How often is looked whether a program has ended.
LOOK_SECONDS = 0.5
MEMORY_MIB = 1536


def addresses(number):
    """Of a card's cable: the host's, the guest's own, and the one that is left for an engine; IPv4 and IPv6."""
    return {
        "host": (f"10.90.{number}.1", f"fd90:{number}::1"),
        "kernel": (f"10.90.{number}.2", f"fd90:{number}::2"),
        "engine": (f"10.90.{number}.11", f"fd90:{number}::11"),
    }


class Guest:
    def __init__(self, packages, image, cards, plugin=None, nodes=1):
        self.packages, self.image, self.cards, self.plugin, self.nodes = packages, image, cards, plugin, nodes
        self.namespace = f"shunt-cards-{os.getpid()}"
        self.folder = tempfile.mkdtemp(prefix="shunt-cards-")
        # Where the plugin that counts (count.c) is asked.
        self.counts = os.path.join(self.folder, "counts")
        self.qemu = self.clock = self.channel = self.monitor = self.relay = None
        self.pending, self.asked = b"", 0

    def __enter__(self):
        try:
            self.connect_cables()
            self.boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for line in (self.channel, self.monitor):
            if line:
                line.close()
        if self.qemu and self.qemu.poll() is None:
            self.qemu.send_signal(signal.SIGTERM)
            try:
                self.qemu.wait(10)
            except subprocess.TimeoutExpired:
                self.qemu.kill()
                self.qemu.wait()
        if self.relay:
            self.relay.kill()
            self.relay.wait()
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def ip(self, *words):
        subprocess.run(["ip", "-n", self.namespace, *words], check=True)

    def connect_cables(self):
        subprocess.run(["ip", "netns", "add", self.namespace], check=True)
        self.ip("link", "set", "lo", "up")
        for number, card in enumerate(self.cards, 1):
            kind = ["multi_queue"] if card in CABLE_QUEUES else []
            self.ip("tuntap", "add", "dev", card, "mode", "tap", *kind, *([] if card == VLAN else ["vnet_hdr"]))
            v4, v6 = addresses(number)["host"]
            self.ip("address", "add", f"{v4}/24", "dev", card)
            self.ip("address", "add", f"{v6}/64", "dev", card, "nodad")
            self.ip("link", "set", card, "up")
        if VLAN in self.cards:
            self.relay = self.beside(sys.executable, RELAY, VLAN, f"{self.folder}/far", f"{self.folder}/near")
            if self.relay.stdout.readline().strip() != "relaying":
                raise Failure(f"{RELAY}: {self.relay.stderr.read()}")

    def cable(self, number):
        """What a card is joined to."""
        card = self.cards[number - 1]
        if card == VLAN:
            return f"dgram,id=n{number},local.type=unix,local.path={self.folder}/near,remote.type=unix,remote.path={self.folder}/far"
        queues = f",queues={CABLE_QUEUES[card]}" if card in CABLE_QUEUES else ""
        return f"tap,id=n{number},ifname={card},script=no,downscript=no,vhost=off{queues}"

    def boot(self):
        command, environment = self.packages.qemu()
        path, monitor = os.path.join(self.folder, "agent"), os.path.join(self.folder, "monitor")
        command += [
            "-machine", "q35,accel=tcg,kernel-irqchip=split", "-cpu", "max", "-smp", "2", "-m", str(MEMORY_MIB), "-nodefaults", "-no-reboot", "-display", "none",
            "-kernel", self.packages.kernel(), "-initrd", self.image, "-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check intel_iommu=on iomem=relaxed",
            "-device", "intel-iommu,intremap=on,device-iotlb=on",
            "-serial", f"file:{self.folder}/console", "-serial", f"unix:{path},server=on,wait=off", "-qmp", f"unix:{monitor},server=on,wait=off",
        ]
        if self.nodes > 1:
            # A processor and half of the memory on each NUMA node; the cards are on the last.
            for node in range(self.nodes):
                command += ["-object", f"memory-backend-ram,id=memory{node},size={MEMORY_MIB // self.nodes}M"]
                command += ["-numa", f"node,nodeid={node},cpus={node},memdev=memory{node}"]
            command += ["-device", f"pxb-pcie,id=far,bus=pcie.0,bus_nr=128,numa_node={self.nodes - 1}"]
        if self.plugin:
            command += ["-plugin", f"{self.plugin},socket={self.counts}"]
        for number, _ in enumerate(self.cards, 1):
            # A slot of its own: only from there can a card be drawn.
            bus = "far" if self.nodes > 1 else "pcie.0"
            command += ["-device", f"pcie-root-port,id=slot{number},slot={number},chassis={number},bus={bus}"]
            command += ["-netdev", self.cable(number)]
            command += ["-device", json.dumps(self.device(number))]
        with open(os.path.join(self.folder, "qemu"), "wb") as log:
            # Ctrl-C is for this script alone, which ends what runs in the guest first.
            self.qemu = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *command],
                env=dict(os.environ, **environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )
        self.clock = Clock(self.qemu.pid)
        deadline = self.clock.now() + BOOT_SECONDS
        while not os.path.exists(path):
            self.must_run(deadline, "opened its serial line")
            time.sleep(0.05)
        self.channel = socket.socket(socket.AF_UNIX)
        self.channel.connect(path)
        self.monitor = socket.socket(socket.AF_UNIX)
        self.monitor.connect(monitor)
        self.tell_monitor("qmp_capabilities")
        self.read_until(lambda line: line == "ready", deadline)

    def device(self, number):
        """A card, for `-device` and for `device_add`."""
        options = {"driver": DRIVERS[self.cards[number - 1]], "id": f"card{number}", "bus": f"slot{number}", "romfile": ""}
        return {**options, **OPTIONS.get(self.cards[number - 1], {}), "netdev": f"n{number}", "mac": f"02:00:00:90:{number:02x}:02"}

    def tell_monitor(self, command, **arguments):
        """One command of QEMU's own (QMP)."""
        self.monitor.settimeout(60)
        self.monitor.sendall(json.dumps({"execute": command, "arguments": arguments} if arguments else {"execute": command}).encode() + b"\n")
        received = b""
        while True:
            received += self.monitor.recv(65536)
            for line in received.split(b"\n")[:-1]:
                answer = json.loads(line)
                if "error" in answer:
                    raise Failure(f"QEMU refuses {command}: {answer['error']['desc']}")
                if "return" in answer:
                    return answer["return"]

    def must_run(self, deadline, what):
        if self.qemu.poll() is not None or self.clock.now() > deadline:
            raise Failure(f"the guest has not {what}: {self.said()}")

    def said(self):
        """The last words of QEMU and of the guest's console."""
        words = []
        for name in ("qemu", "console"):
            try:
                with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                    words += file.read().splitlines()[-20:]
            except OSError:
                pass
        return "\n".join(words)

    def read_until(self, is_last, deadline, may_fail=False):
        """Lines before the last one, and that one; None: it has not come, where that is no failure."""
        lines = []
        while True:
            while b"\n" in self.pending:
                line, self.pending = self.pending.split(b"\n", 1)
                text = line.decode("utf-8", "replace").rstrip("\r")
                if is_last(text):
                    return lines, text
                lines.append(text)
            if may_fail and self.clock.now() > deadline:
                return None
            self.must_run(deadline, "answered")
            if select.select([self.channel], [], [], LOOK_SECONDS)[0]:
                self.pending += self.receive()

    def send(self, said):
        try:
            self.channel.sendall(said)
        except OSError as error:
            raise Failure(f"the guest has ended: {self.said()}") from error

    def receive(self):
        try:
            received = self.channel.recv(65536)
        except OSError:
            received = b""
        if not received:
            raise Failure(f"the guest has ended: {self.said()}")
        return received

    def ask(self, line, deadline):
        """Has the guest's shell run a line; what it printed, and how it ended."""
        self.asked += 1
        number, line = str(self.asked), line.strip()
        said = f"\n{number} {len(number) + len(line.encode())} {line}\n".encode()
        while True:
            self.send(said)
            again = min(deadline, self.clock.now() + HEARD_SECONDS)
            if self.read_until(lambda text: text == f"@heard {number}", again, again < deadline):
                return self.read_until(lambda text: text.startswith("@end "), deadline)

    def run(self, line, seconds=120, check=True):
        """Runs a line in the guest's shell; its output."""
        lines, last = self.ask(line, self.clock.now() + seconds)
        output = "\n".join(lines)
        if check and last != "@end 0":
            raise Failure(f"{line}: exit status {last[5:]}: {output}")
        return output

    def wait_for(self, line, seconds, what):
        """Until a line succeeds."""
        deadline = self.clock.now() + seconds
        while True:
            # Its answer is waited for in any case: it would be taken for the next one's.
            lines, last = self.ask(line, deadline + ANSWER_SECONDS)
            if last == "@end 0":
                return lines
            if self.clock.now() > deadline:
                raise Failure(f"no {what} within {seconds} s: {' '.join(lines)}")
            time.sleep(0.2)

    @contextlib.contextmanager
    def changed(self, number, nic, place):
        """A card and its cable as a place wants them, meanwhile; the interface to use."""
        card = self.cards[number - 1]
        if place == "jumbo":
            self.ip("link", "set", card, "mtu", "9000")
            self.run(f"ip link set {nic} mtu 9000")
            try:
                yield nic
            finally:
                self.run(f"ip link set {nic} mtu 1500")
                self.ip("link", "set", card, "mtu", "1500")
        else:
            yield nic

    @contextlib.contextmanager
    def given_away(self, nic):
        """A card without the kernel, for a driver in a program, meanwhile; its PCI address."""
        pci = self.run(f"cd -P /sys/class/net/{nic}/device; case $PWD in */virtio*) cd ..;; esac; basename $PWD").strip()
        device, drivers = f"/sys/bus/pci/devices/{pci}", "/sys/bus/pci/drivers"
        driver = self.run(f"basename $(readlink -f {device}/driver)").strip()
        self.run("echo 128 >/proc/sys/vm/nr_hugepages")
        self.give_to_program(pci)
        try:
            yield pci
        finally:
            self.run(f"echo 0 >/proc/sys/vm/nr_hugepages; echo >{device}/driver_override; echo {pci} >{drivers}/vfio-pci/unbind; echo {pci} >{drivers}/{driver}/bind")
            self.wait_for(f"ip link set {nic} up || {{ dmesg | tail -n 4; false; }}", 60, nic)

    def give_to_program(self, pci):
        """Has vfio-pci take a card from the kernel's driver."""
        device = f"/sys/bus/pci/devices/{pci}"
        self.run(f"echo vfio-pci >{device}/driver_override; echo {pci} >{device}/driver/unbind; echo {pci} >/sys/bus/pci/drivers_probe; test -e /sys/bus/pci/drivers/vfio-pci/{pci}")

    def plug(self, number):
        """Puts a drawn card into its slot again."""
        self.tell_monitor("device_add", **self.device(number))

    def beside(self, *words):
        """Starts a program beside the host's side of the cables."""
        return subprocess.Popen(["ip", "netns", "exec", self.namespace, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def on_host(self, *words, seconds=120):
        """Runs a program beside the host's side of the cables."""
        program, deadline = self.beside(*words), self.clock.now() + seconds
        while True:
            try:
                said = program.communicate(timeout=LOOK_SECONDS)
                return subprocess.CompletedProcess(words, program.returncode, *said)
            except subprocess.TimeoutExpired as error:
                if self.clock.now() > deadline:
                    program.kill()
                    program.communicate()
                    raise Failure(f"{' '.join(words[:4])} did not end within {seconds} s") from error
