"""What a message and a byte cost in each way: instructions, and how often bytes are copied and read, counted by a plugin of QEMU (count.c)."""

import os
import shutil
import socket
import subprocess

from guest import VLAN, addresses
from matrix import DPDK, WAYS
from words import Failure, Skip, say

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "count.c")
# The kernel's own stack, with the same programs, beside Shunt's ways.
KERNEL = "kernel"
# For each operation the program in the guest, its port and its line.
PROGRAMS = {
    "rounds": (7007, "shunt echo --listen {0}:7007"),
    "sink": (7001, "socat -b 65536 -u TCP4-LISTEN:7001,bind={0},reuseaddr OPEN:/dev/null"),
    "source": (7002, "socat -b 65536 -u OPEN:/tmp/content-{1} TCP4-LISTEN:7002,bind={0},reuseaddr"),
}
# Of each operation a shorter and a longer run: their difference leaves out what a connection costs.
OPERATIONS = {"rounds": (50, 250), "sink": (1 << 20, 4 << 20), "source": (1 << 20, 4 << 20)}
# Its ways without a copy of the kernel's, where received bytes lie in memory of the engine's.
WITHOUT_COPY = ("zero-copy", DPDK)
# A driver that sends pages as they are (IFF_TX_SKB_NO_LINEAR) is given those of AF_XDP's memory in its other modes, too.
SENT_WITHOUT_COPY = (("virtio", "generic"), ("virtio", "native"))
# Where frames of 9,000 bytes are tried too: those that AF_XDP has in several pieces.
JUMBO = (("igb", "generic"),)
# Where the plugin's line has it.
STORED_BY_KERNEL = 4
# So often the kernel may touch a byte there all the same: what other programs do meanwhile.
STRAY = 0.05


def compile_plugin(folder):
    """The plugin, made of its source; its path."""
    compiler = shutil.which("cc")
    if not compiler:
        raise Skip("no C compiler for the plugin that counts: apt-get install gcc")
    target = os.path.join(folder, "count.so")
    subprocess.run([compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-o", target, SOURCE], check=True)
    return target


class Costs:
    MARKS = ("<!-- costs -->", "<!-- end of costs -->")

    def __init__(self, guest, matrix):
        self.guest, self.matrix = guest, matrix
        self.results = []

    def run(self):
        for count in OPERATIONS["source"]:
            # One byte again and again, which the plugin knows.
            self.guest.run(f"head -c {count} /dev/zero | tr '\\000' '\\247' >/tmp/content-{count}")
        for number, card in enumerate(self.guest.cards, 1):
            if card == VLAN:
                continue
            nic = self.matrix.find(number)
            for way, place in [(way, place) for place in ("engine", "jumbo") for way in (KERNEL, *self.matrix.ways)]:
                result = {"card": card, "way": way, "place": place}
                if self.matrix.impossible(card, way, "engine") or (place == "jumbo" and (card, way) not in JUMBO):
                    continue
                self.results.append(result)
                try:
                    changed = self.guest.given_away(nic) if way == DPDK else self.guest.changed(number, nic, place)
                    with changed as served:
                        self.one(number, served, result)
                    self.judge(result)
                    result["outcome"] = "ok"
                except Failure as failure:
                    result.update(outcome="failed", said=str(failure))
                say(f"{card} {way}: {result}")

    def one(self, number, nic, result):
        way = result["way"]
        v4, _ = addresses(number)["kernel" if way == KERNEL else "engine"]
        engine, run = None, ""
        if way != KERNEL:
            engine = self.matrix.start("engine", f"shunt engine --nic {nic} {WAYS[way][0]} --spin-us 0 --address {v4}/24")
            run = "shunt run --policy engine-only --"
        try:
            if engine:
                self.matrix.wait_for_engine(engine)
            for name, (port, line) in PROGRAMS.items():
                spent = [self.spent(way, f"{run} {line.format(v4, count)}", port, (name, v4, str(count))) for count in (OPERATIONS[name][0], *OPERATIONS[name])]
                shorter, longer = OPERATIONS[name]
                # The first run is the one in which memory is touched for the first time.
                result[name] = [(more - less) / (longer - shorter) for less, more in zip(spent[1], spent[2])]
        finally:
            if engine:
                self.matrix.end(engine)

    def spent(self, way, line, port, probe):
        """What the guest's processors did while a program served one peer."""
        program = self.matrix.start("program", line)
        try:
            listing = "netstat -ltn" if way == KERNEL else "shunt ss"
            self.guest.wait_for(f"{listing} | grep -i listen | grep -q ':{port} ' || {{ tail -n 2 /tmp/program; false; }}", 60, "program that listens")
            before = self.counts()
            self.matrix.probe(*probe)
            return [after - then for after, then in zip(self.counts(), before)]
        finally:
            self.matrix.end(program)

    def counts(self):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(self.guest.counts)
            return [int(word) for word in asking.makefile().readline().split()]

    @staticmethod
    def judge(result):
        """Without a copy of the kernel's there is none, and with one there is."""
        for name, own in (("sink", 0), ("source", 1)):
            copied = result[name][STORED_BY_KERNEL] - own
            is_sent_so = name == "source" and (result["card"], result["way"]) in SENT_WITHOUT_COPY
            if (copied < STRAY) != (result["way"] in WITHOUT_COPY or is_sent_so):
                raise Failure(f"{name}: the kernel copied {copied:.2f} of each byte")

    def failures(self):
        return [result for result in self.results if result["outcome"] == "failed"]

    @staticmethod
    def words(result):
        if result["outcome"] != "ok":
            return [f"failed: {result['said']}", "", ""]
        kernel, programs, *_ = result["rounds"]
        cells = [f"{kernel / 1000:.1f} + {programs / 1000:.1f}"]
        for name, own in (("sink", 0), ("source", 1)):
            kernel, programs, *touched = result[name]
            # What the program reads of its file is no part of it.
            touched = [touched[0] - own, touched[1], touched[2] - own, touched[3]]
            read, stored = (f"{of[0]:.2f} + {of[1]:.2f}".replace("-0.00", "0.00") for of in (touched[:2], touched[2:]))
            cells.append(f"{kernel * 1024:.0f} + {programs * 1024:.0f}; copied {stored}, read {read}")
        return cells

    def table(self):
        lines = ["| card, way | a round trip of 64 bytes, thousand instructions | received: instructions for each KiB; of each byte | sent: the same |", "|---|---|---|---|"]
        for result in self.results:
            frames = ", frames of 9,000 bytes" if result["place"] == "jumbo" else ""
            lines.append(f"| {result['card']}, {result['way']}{frames} | {' | '.join(self.words(result))} |")
        return "\n".join(lines)
