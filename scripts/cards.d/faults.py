"""What only a card has: it loses its carrier, is set up anew, goes and comes back, while bytes are on their way."""

import json
import os
import shlex
import subprocess
import sys
import time

from guest import VLAN, addresses
from matrix import PROBE, REDIS, WAYS
from words import Failure, say

# How long a fault lasts, and how long the transfer may take with it.
SECONDS = 3
PATIENCE = 150


def carrier(guest, number, _):
    guest.tell_monitor("set_link", name=f"n{number}", up=False)
    yield "no carrier"
    guest.tell_monitor("set_link", name=f"n{number}", up=True)


def switched_off(guest, _, nic):
    guest.run(f"ip link set {nic} down")
    yield "is down"
    guest.run(f"ip link set {nic} up")


def negotiation(guest, _, nic):
    guest.run(f"ethtool -r {nic}")
    yield None


def rings(guest, _, nic):
    guest.run(f"ethtool -G {nic} rx 128 tx 128")
    yield None
    guest.run(f"ethtool -G {nic} rx 256 tx 256")


def mtu(guest, _, nic):
    guest.run(f"ip link set {nic} mtu 1400")
    yield None
    guest.run(f"ip link set {nic} mtu 1500")


def driver(guest, _, nic):
    device = f"/sys/class/net/{nic}/device"
    where = guest.run(f"basename $(readlink -f {device}); readlink -f {device}/driver").split()
    guest.run(f"echo {where[0]} >{where[1]}/unbind")
    yield "is gone"
    guest.run(f"echo {where[0]} >{where[1]}/bind")
    guest.wait_for(f"ip link set {nic} up", 30, nic)


def unplugged(guest, number, nic):
    guest.tell_monitor("device_del", id=f"card{number}")
    guest.wait_for(f"! test -e /sys/class/net/{nic}", 60, "drawn card")
    yield "is gone"
    guest.plug(number)
    guest.wait_for(f"ip link set {nic} up", 60, nic)


# A generator each: it begins the fault, says which words the engine is to use of it (None: none are due), and takes it back.
FAULTS = {
    "carrier": carrier,
    "switched-off": switched_off,
    "negotiation": negotiation,
    "rings": rings,
    "MTU": mtu,
    "driver": driver,
    "unplugged": unplugged,
}
# After these an engine of AF_XDP serves by a packet socket, and says so.
MADE_ANEW = ("driver", "unplugged")


class Faults:
    MARKS = ("<!-- faults -->", "<!-- end of faults -->")

    def __init__(self, guest, matrix, names):
        self.guest, self.matrix, self.names = guest, matrix, names
        self.results = []

    def run(self):
        for number, card in enumerate(self.guest.cards, 1):
            if card == VLAN:
                continue
            nic = self.matrix.find(number)
            for way in self.matrix.ways:
                for name in self.names:
                    result = {"card": card, "way": way, "fault": name}
                    self.results.append(result)
                    if self.matrix.impossible(card, way, "engine"):
                        result["outcome"] = "not possible"
                        continue
                    try:
                        self.one(number, nic, way, name)
                        result["outcome"] = "ok"
                    except Failure as failure:
                        is_refused = "not supported" in str(failure)
                        result.update(outcome="not possible" if is_refused else "failed", said=str(failure))
                    say(f"{card} {way} {name}: {result['outcome']} {result.get('said', '')}")

    def one(self, number, nic, way, name):
        guest, (v4, _) = self.guest, addresses(number)["engine"]
        pids = []
        try:
            pids.append(self.matrix.start("engine", f"shunt engine --nic {nic} {WAYS[way][0]} --address {v4}/24"))
            self.matrix.wait_for_engine(pids[0])
            pids.append(self.matrix.start("redis", f"shunt run --policy engine-only -- {REDIS} {v4}"))
            self.matrix.wait_to_serve("redis", pids[1])
            with guest.beside(sys.executable, PROBE, "slowly", v4) as transfer:
                try:
                    transfer.stdout.readline()
                    self.bring(number, nic, name)
                    _, stderr = transfer.communicate(timeout=PATIENCE)
                except subprocess.TimeoutExpired as error:
                    transfer.kill()
                    raise Failure(f"the transfer did not end within {PATIENCE} s") from error
                if transfer.returncode != 0:
                    raise Failure(f"the transfer: {(stderr.strip() or 'no word').splitlines()[-1]}")
            self.judge_rest(way, name, pids[0])
        finally:
            for pid in reversed(pids):
                self.matrix.end(pid)

    def bring(self, number, nic, name):
        steps = FAULTS[name](self.guest, number, nic)
        expected = next(steps)
        time.sleep(SECONDS)
        if expected:
            complaints = self.complaints()
            if expected not in complaints:
                raise Failure(f"the engine does not say that {nic} {expected}: {complaints or 'nothing'}")
        for _ in steps:
            raise Failure(f"{name}: a fault has two halves")

    def complaints(self):
        return " ".join(json.loads(self.guest.run("shunt status --json"))["complaints"])

    def judge_rest(self, way, name, pid):
        """Afterwards nothing is to be complained of, and an engine with nothing to do uses no processor."""
        deadline = time.monotonic() + 10
        while (left := self.complaints()) and time.monotonic() < deadline:
            if way != "af_packet" and name in MADE_ANEW and "made anew" in left:
                break
            time.sleep(0.5)
        else:
            if left:
                raise Failure(f"still said afterwards: {left}")
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
                of = {result["way"]: result["outcome"] for result in self.results if (result["card"], result["fault"]) == (card, fault)}
                lines.append(f"| {card}, {fault} | " + " | ".join(of[way] for way in ways) + " |")
        return "\n".join(lines)
