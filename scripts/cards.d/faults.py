"""What only a card has: it loses its carrier, is set up anew, goes and comes back, while bytes are on their way."""

import contextlib
import dataclasses
import json
import os
import shlex
import subprocess
import sys
import time

from guest import CABLE_QUEUES, VLAN, addresses
from matrix import DPDK, PROBE, REDIS, WAYS
from words import Failure, say

# How long a fault lasts, and how long the transfer may take with it.
SECONDS = 3
PATIENCE = 150
# Within how long an engine is to say what is wrong.
SAID_SECONDS = 40


@dataclasses.dataclass
class Site:
    """Where a fault is to be made."""

    guest: object
    number: int
    nic: str
    way: str
    # Where the engine runs: a process, or inside the program.
    place: str

    def run(self, line):
        return self.guest.run(line)

    def has_driver(self):
        """Whether the card's own driver serves; with DPDK it is a program, and no interface is there."""
        return self.way != DPDK


def carrier(site):
    site.guest.tell_monitor("set_link", name=f"n{site.number}", up=False)
    yield "no carrier" if site.has_driver() else "is down"
    site.guest.tell_monitor("set_link", name=f"n{site.number}", up=True)


def switched_off(site):
    site.run(f"ip link set {site.nic} down")
    yield "is down"
    site.run(f"ip link set {site.nic} up")


def negotiation(site):
    site.run(f"ethtool -r {site.nic}")
    yield None


def rings(site):
    site.run(f"ethtool -G {site.nic} rx 128 tx 128")
    yield None
    site.run(f"ethtool -G {site.nic} rx 256 tx 256")


def channels(site):
    """One queue more than the engine has found, and back."""
    site.run(f"ethtool -L {site.nic} combined 2")
    yield None if site.way == "af_packet" else "receive queues, and"
    site.run(f"ethtool -L {site.nic} combined 1")


def mtu(site):
    site.run(f"ip link set {site.nic} mtu 1400")
    yield None
    site.run(f"ip link set {site.nic} mtu 1500")


def driver(site):
    device = f"/sys/class/net/{site.nic}/device"
    where = site.run(f"basename $(readlink -f {device}); readlink -f {device}/driver").split()
    site.run(f"echo {where[0]} >{where[1]}/unbind")
    yield "is gone"
    site.run(f"echo {where[0]} >{where[1]}/bind")
    site.guest.wait_for(f"ip link set {site.nic} up", 30, site.nic)


def unplugged(site):
    site.guest.tell_monitor("device_del", id=f"card{site.number}")
    if site.has_driver():
        site.guest.wait_for(f"! test -e /sys/class/net/{site.nic}", 60, "drawn card")
    else:
        site.guest.wait_for(f"! test -e /sys/bus/pci/devices/{site.nic}", 60, "drawn card")
    yield "is gone"
    site.guest.plug(site.number)
    if site.has_driver():
        site.guest.wait_for(f"ip link set {site.nic} up", 60, site.nic)
    else:
        # It comes back as the kernel's, until vfio-pci has it as before.
        site.guest.wait_for(f"test -e /sys/bus/pci/devices/{site.nic}/driver", 60, "card that is back")
        site.guest.give_to_program(site.nic)


def registers(site, first, value):
    """Gives a register that each queue of an igb has another value; returns what puts back what was there."""
    back = []
    device = f"/sys/class/net/{site.nic}/device" if site.has_driver() else f"/sys/bus/pci/devices/{site.nic}"
    memory = int(site.run(f"head -n 1 {device}/resource").split()[0], 16)
    for queue in range(QUEUES):
        at = f"{memory + first + queue * QUEUE_BYTES:#x}"
        before = int(site.run(f"devmem {at} 32"), 16)
        site.run(f"devmem {at} 32 {value(before):#x}")
        back.append(f"devmem {at} 32 {before:#x}")
    return "; ".join(back)


def receive_queue(site):
    """Nothing arrives in any queue, as from a card that hangs."""
    back = registers(site, RXDCTL, lambda before: before & ~QUEUE_ENABLE)
    yield "nothing has arrived"
    site.run(back)
    # The emulation looks again for what waits when it is given memory to receive into.
    site.run(registers(site, RDT, lambda before: before))


def set_queues_short(site):
    """Has the kernel call a queue full after one frame. It finds a card that sends no more by a queue that stays full, and how much fills one
    depends on what was sent before (byte queue limits)."""
    if site.has_driver():
        limits = f"/sys/class/net/{site.nic}/queues/tx-*/byte_queue_limits"
        site.run(f"for limits in {limits}; do echo 1 >$limits/limit_max; echo 1 >$limits/limit; done")


def send_queue(site):
    """Nothing leaves any queue. The card's driver finds that, and sets the card up anew, or the engine does."""
    set_queues_short(site)
    registers(site, TXDCTL, lambda before: before & ~QUEUE_ENABLE)
    time.sleep(LONG)
    yield None


def iommu(site):
    """The card fetches what it is to send from where it may not: the IOMMU refuses, and the kernel says so."""
    site.run("dmesg -c >/dev/null")
    set_queues_short(site)
    registers(site, TDBAL, lambda _: NOWHERE)
    site.guest.wait_for("dmesg | grep -q 'DMAR: .*fault addr 0x[0-9a-f]*dead0'", 60, "fault of the IOMMU")
    time.sleep(LONG)
    yield None


# A generator each: it begins the fault, says which words the engine is to use of it (None: none are due), and takes it back.
FAULTS = {
    "carrier": carrier,
    "switched-off": switched_off,
    "negotiation": negotiation,
    "rings": rings,
    "channels": channels,
    "MTU": mtu,
    "driver": driver,
    "unplugged": unplugged,
    "receive-queue": receive_queue,
    "send-queue": send_queue,
    "IOMMU": iommu,
}
# What ethtool says of what a driver does not do, virtio_net with a program of XDP among them.
REFUSED = ("not supported", "netlink error: Invalid argument")
# Made by registers of the 82576 (its data sheet, 8.10 and 8.12), of so many queues.
OF_IGB = ("receive-queue", "send-queue", "IOMMU")
QUEUES, QUEUE_BYTES = 2, 0x40
RDT, RXDCTL, TDBAL, TXDCTL, QUEUE_ENABLE = 0xC018, 0xC028, 0xE000, 0xE028, 1 << 25
# Where the IOMMU leads nowhere.
NOWHERE = 0xDEAD0000
# In which way the bytes go: nothing is missed by who sends nothing.
FROM_GUEST = ("receive-queue",)
# Of a card that is a program's.
OF_DPDK = ("carrier", "unplugged", "receive-queue", "send-queue", "IOMMU")
# After these the engine sets such a card up anew; it says so for a second.
HUNG = ("send-queue", "IOMMU")
LONG = 25
# After these an engine of AF_XDP serves by a packet socket, and says so.
MADE_ANEW = ("driver", "unplugged")
# With a program of XDP the driver of a virtio-net takes queues that were left. It never lets go of a card that had some then, whatever the
# program is: before such faults none are left.
QUEUES_TAKEN = ("native", "zero-copy")
# Where an engine is tried, and the program whose output is shown when it fails. An engine inside a program has no log.
LOGS = {"engine": "engine", "inline": "redis"}


class Faults:
    MARKS = ("<!-- faults -->", "<!-- end of faults -->")

    def __init__(self, guest, matrix, names):
        self.guest, self.matrix, self.names = guest, matrix, names
        self.places = [place for place in matrix.places if place in LOGS]
        self.results = []

    def run(self):
        for number, card in enumerate(self.guest.cards, 1):
            if card == VLAN:
                continue
            for way in self.matrix.ways:
                for name in self.names:
                    for place in self.places:
                        if place == "inline" and way == DPDK:
                            continue
                        result = {"card": card, "way": way, "fault": name, "place": place}
                        self.results.append(result)
                        self.cell(number, result)

    def cell(self, number, result):
        card, way, name, place = result["card"], result["way"], result["fault"], result["place"]
        if self.impossible(card, way, name):
            result["outcome"] = "not possible"
            return
        try:
            nic = self.matrix.find(number)
            with self.prepared(card, nic, way, name) as served:
                self.one(Site(self.guest, number, served, way, place), name)
            result["outcome"] = "ok"
        except Failure as failure:
            is_refused = any(word in str(failure) for word in REFUSED)
            words = str(failure) if is_refused else f"{failure}; the engine's last words: {self.matrix.said(LOGS[place])}"
            result.update(outcome="not possible" if is_refused else "failed", said=words)
        say(f"{card} {way} {name} {place}: {result['outcome']} {result.get('said', '')}")

    def impossible(self, card, way, name):
        if name in OF_IGB and card != "igb":
            return True
        return way == DPDK and name not in OF_DPDK or self.matrix.impossible(card, way, "engine")

    @contextlib.contextmanager
    def prepared(self, card, nic, way, name):
        """A card as a fault wants it, meanwhile; what the engine is told of it."""
        if way == DPDK:
            with self.guest.given_away(nic) as pci:
                yield pci
        elif name == "channels":
            self.guest.run(f"ethtool -L {nic} combined 1")
            try:
                yield nic
            finally:
                self.guest.run(f"ethtool -L {nic} combined 2")
        elif card == "virtio" and way in QUEUES_TAKEN and name in MADE_ANEW:
            self.guest.run(f"ethtool -L {nic} combined {CABLE_QUEUES[card]}")
            yield nic
        else:
            yield nic

    def one(self, site, name):
        guest, (v4, _) = self.guest, addresses(site.number)["engine"]
        own = f"--nic {site.nic} {WAYS[site.way][0]} --address {v4}/24"
        pids = []
        try:
            if site.place == "engine":
                pids.append(self.matrix.start("engine", f"shunt engine {own}"))
                self.matrix.wait_for_engine(pids[0])
                own = ""
            else:
                own = f"--engine-mode inline {own}"
            pids.append(self.matrix.start("redis", f"shunt run --policy engine-only {own} -- {REDIS} {v4}"))
            self.matrix.wait_to_serve("redis", pids[-1])
            with guest.beside(sys.executable, PROBE, "slowly_back" if name in FROM_GUEST else "slowly", v4) as transfer:
                try:
                    transfer.stdout.readline()
                    self.bring(site, name)
                    _, stderr = transfer.communicate(timeout=PATIENCE)
                except subprocess.TimeoutExpired as error:
                    transfer.kill()
                    raise Failure(f"the transfer did not end within {PATIENCE} s") from error
                except Failure:
                    transfer.kill()
                    raise
                if transfer.returncode != 0:
                    raise Failure(f"the transfer: {(stderr.strip() or 'no word').splitlines()[-1]}")
            self.judge_rest(site, name, pids[0])
        finally:
            for pid in reversed(pids):
                self.matrix.end(pid)

    def bring(self, site, name):
        steps = FAULTS[name](site)
        expected = next(steps)
        time.sleep(SECONDS)
        complaints = self.complaints_with(expected) if expected else ""
        for _ in steps:
            raise Failure(f"{name}: a fault has two halves")
        if expected and expected not in complaints:
            raise Failure(f"the engine does not say that {site.nic} {expected}: {complaints or 'nothing'}")
        if expected and site.place == "engine":
            site.guest.wait_for(f"grep -qF {shlex.quote(expected)} /tmp/engine", 5, f"line of the log that says {expected!r}")

    def complaints_with(self, expected):
        """What is said of a fault that lasts; of a silence that it is one only after ten seconds in which frames left."""
        deadline = self.guest.clock.now() + SAID_SECONDS
        while expected not in (said := self.complaints()) and self.guest.clock.now() < deadline:
            time.sleep(0.5)
        return said

    def complaints(self):
        return " ".join(json.loads(self.guest.run("shunt status --json"))["complaints"])

    def judge_rest(self, site, name, pid):
        """Afterwards nothing is to be complained of, and an engine with nothing to do uses no processor."""
        deadline = time.monotonic() + 10
        while (left := self.complaints()) and time.monotonic() < deadline:
            if site.way != "af_packet" and name in MADE_ANEW and "made anew" in left:
                break
            time.sleep(0.5)
        else:
            if left:
                raise Failure(f"still said afterwards: {left}")
        if site.way == DPDK and name in HUNG:
            self.guest.run("grep -q 'took frames and sent none' /tmp/engine")
        ticks = f"cut -d ' ' -f 14,15 /proc/{shlex.quote(pid.strip())}/stat"
        before, start = sum(map(int, self.guest.run(ticks).split())), time.monotonic()
        time.sleep(SECONDS)
        used = sum(map(int, self.guest.run(ticks).split())) - before
        share = used / 100 / (time.monotonic() - start)
        if share > 0.25:
            raise Failure(f"an engine with nothing to do uses {share:.0%} of a processor")

    def failures(self):
        return [result for result in self.results if result["outcome"] == "failed"]

    def table(self):
        ways = self.matrix.ways
        lines = ["| card, fault | " + " | ".join(ways) + " |", "|---|" + "---|" * len(ways)]
        for card in [card for card in self.guest.cards if card != VLAN]:
            for fault in self.names:
                cells = [self.words(card, fault, way) for way in ways]
                lines.append(f"| {card}, {fault} | " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def words(self, card, fault, way):
        """A cell of the table: where all places are alike, one word."""
        cells = [result for result in self.results if (result["card"], result["fault"], result["way"]) == (card, fault, way)]
        if len({cell["outcome"] for cell in cells}) == 1:
            return cells[0]["outcome"]
        return "; ".join(f"{cell['place']}: {cell['outcome']}" for cell in cells)
