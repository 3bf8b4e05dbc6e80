"""Two engine cores and a card of several queues: whether packets arrive in a queue of their core, and whether the card gets back what it had."""

import json
import sys

from guest import addresses
from matrix import DPDK, PROBE, REDIS, WAYS
from words import Failure, say

# Cards of several queues, as QEMU has them: whether their drivers take a key, so that the card can spread as the engine does.
TAKES_KEY = {"igb": True, "vmxnet3": False, "virtio": True}
# Those whose drivers of DPDK do.
DPDK_TAKES_KEY = {"igb": True, "vmxnet3": False, "virtio": True}
# Connections that a program in the guest opens.
CALLS = 8
AFTERWARDS = 20
# How the engine is started, and how it ends.
RUNS = (("", "TERM"), ("", "KILL"), ("--leave-card", "TERM"), ("--share", "TERM"))


class Queues:
    MARKS = ("<!-- queues -->", "<!-- end of queues -->")

    def __init__(self, guest, matrix):
        self.guest, self.matrix = guest, matrix
        self.results = []

    def run(self):
        for number, card in enumerate(self.guest.cards, 1):
            if card not in TAKES_KEY:
                continue
            nic = self.matrix.find(number)
            for way in self.matrix.ways:
                result = {"card": card, "way": way, "runs": []}
                self.results.append(result)
                if self.matrix.impossible(card, way, "cores"):
                    result["outcome"] = "not possible"
                    continue
                try:
                    if way == DPDK:
                        result["runs"].append(self.one_of_dpdk(number, card, nic))
                    else:
                        for flags, signal in RUNS if TAKES_KEY[card] else RUNS[:1]:
                            result["runs"].append(self.one(number, nic, way, (flags, signal)))
                    result["outcome"] = "ok"
                except Failure as failure:
                    result.update(outcome="failed", said=str(failure))
                say(f"{card} {way}: {self.words(result)}")

    def one(self, number, nic, way, how):
        """One engine; how many frames of TCP it got, and how many of them in a queue of another core."""
        guest, (flags, signal) = self.guest, how
        v4, v6 = addresses(number)["kernel" if flags == "--share" else "engine"]
        own = "" if flags == "--share" else f"--address {v4}/24 --address {v6}/64"
        is_by_card = TAKES_KEY[guest.cards[number - 1]] and flags != "--leave-card"
        before, key = self.spread(nic), self.key(nic)
        pids = []
        try:
            line = f"shunt engine --nic {nic} {WAYS[way][0]} --cores 2 {flags} {own}"
            pids.append(self.matrix.start("engine", line))
            self.matrix.wait_for_engine(pids[0])
            if self.status()["spread_by_card"] != is_by_card:
                raise Failure(f"spread by the card: {not is_by_card}: {self.matrix.said('engine')}")
            if (self.key(nic) != key) != is_by_card:
                raise Failure("the card's table and key are not as the engine says")
            received, elsewhere = self.traffic(number, v4, v6)
            if way == "af_packet" and signal == "TERM":
                self.crash(pids[0], nic)
        finally:
            for pid in reversed(pids):
                self.end(pid, signal)
        self.guest.wait_for(f"test \"$(ethtool -x {nic} | md5sum)\" = '{before}'", AFTERWARDS, "table and key as before")
        if way != "af_packet" and (elsewhere > 0) == is_by_card:
            raise Failure(f"{elsewhere} frames of {received} came in queues of other cores")
        return received, elsewhere

    def one_of_dpdk(self, number, card, nic):
        """The same; the card is nobody else's, and the kernel has it again afterwards, though the engine is killed."""
        v4, v6 = addresses(number)["engine"]
        self.guest.run("echo 128 >/proc/sys/vm/nr_hugepages")
        pid = self.matrix.start("engine", f"shunt engine --nic {nic} --take-card {WAYS[DPDK][0]} --cores 2 --address {v4}/24 --address {v6}/64")
        try:
            self.matrix.wait_for_engine(pid)
            self.guest.run(f"test ! -e /sys/class/net/{nic}")
            received, elsewhere = self.traffic(number, v4, v6)
        finally:
            self.end(pid, "KILL")
            self.guest.wait_for(f"ip link set {nic} up", AFTERWARDS, nic)
            self.guest.run("echo 0 >/proc/sys/vm/nr_hugepages")
        if (elsewhere > 0) == DPDK_TAKES_KEY[card]:
            raise Failure(f"{elsewhere} frames of {received} came in queues of other cores")
        return received, elsewhere

    def traffic(self, number, v4, v6):
        """Short connections to a program in the guest and from some; frames that the engine got, and those of another core's queue."""
        pid = self.matrix.start("redis", f"shunt run --policy engine-only -- {REDIS} {v4} {v6}")
        try:
            self.matrix.wait_to_serve("redis", pid)
            for address in (v4, v6):
                self.matrix.probe("many", address)
            self.call(number)
            status = self.status()
        finally:
            self.matrix.end(pid)
        received = [core["rx_frames"] for core in status["by_core"]]
        if min(received) == 0:
            raise Failure(f"a core got no frame: {received}")
        return sum(received), status["driver_counters"]["rx_elsewhere"]

    def crash(self, keeper, nic):
        """The engine is killed, and its keeper starts another: the card stays as it is."""
        before, was_by_card = self.spread(nic), self.status()["spread_by_card"]
        self.guest.run(f"for pid in $(pidof shunt); do [ $(cut -d ' ' -f 4 /proc/$pid/stat) = {keeper.strip()} ] && kill -9 $pid; done; true")
        self.guest.wait_for("shunt status | grep -q 'restarts after a crash 1'", 30, "another engine")
        if (self.spread(nic), self.status()["spread_by_card"]) != (before, was_by_card):
            raise Failure("the next engine spreads otherwise than the card")

    def spread(self, nic):
        return self.guest.run(f"ethtool -x {nic} | md5sum").strip()

    def key(self, nic):
        """Without the table, which is another where the driver has more queues with a program of XDP."""
        return self.guest.run(f"ethtool -x {nic} | sed -n '/key/,$p' | md5sum").strip()

    def status(self):
        return json.loads(self.guest.run("shunt status --json"))

    def call(self, number):
        """Programs in the guest open connections to the host."""
        host = addresses(number)["host"][0]
        with self.guest.beside(sys.executable, PROBE, "answer", host) as answering:
            try:
                answering.stdout.readline()
                for call in range(CALLS):
                    heard = self.guest.run(f"echo call {call} | shunt run --policy engine-only -- socat -t 20 - TCP4:{host}:7000 2>/dev/null")
                    if heard.strip() != f"call {call}":
                        raise Failure(f"a connection to the host: {heard!r} came back")
            finally:
                answering.kill()

    def end(self, pid, signal):
        if signal == "TERM":
            self.matrix.end(pid)
        else:
            self.guest.run(f"kill -{signal} {pid.strip()}")
            self.guest.wait_for("! shunt status >/dev/null 2>&1", 20, "end of the engine")

    def failures(self):
        return [result for result in self.results if result["outcome"] == "failed"]

    @staticmethod
    def words(result):
        if result["outcome"] == "failed":
            return f"failed: {result['said']}"
        if result["outcome"] != "ok":
            return result["outcome"]
        if result["way"] == "af_packet":
            return "ok"
        by_card = TAKES_KEY[result["card"]] and result["way"] != DPDK
        received, elsewhere = (sum(column) for column in zip(*(result["runs"][:2] if by_card else result["runs"])))
        text = f"{elsewhere} of {received}"
        if by_card:
            for run, flag in ((3, "--share"), (2, "--leave-card")):
                received, elsewhere = result["runs"][run]
                text += f"; with `{flag}` {elsewhere} of {received}"
        return text

    def table(self):
        ways = self.matrix.ways
        lines = ["| card | " + " | ".join(ways) + " |", "|---|" + "---|" * len(ways)]
        for card in [card for card in self.guest.cards if card in TAKES_KEY]:
            of = {result["way"]: self.words(result) for result in self.results if result["card"] == card}
            lines.append(f"| {card} | " + " | ".join(of[way] for way in ways) + " |")
        return "\n".join(lines)
