"""A machine of two NUMA nodes whose cards are on the second: where memory of queues and windows lies, and what is said of it."""

import re
import sys

from guest import VLAN, addresses
from matrix import DPDK, PROBE, REDIS, WAYS
from words import Failure, say

NODES = 2
FAR, NEAR = 0, 1
# Mappings of an engine, as /proc/PID/numa_maps names them: frames of AF_XDP, of a packet socket, and the memory that is shared with a program.
KINDS = {"frames": r"file=(/dev/zero|socket:)", "windows": r"file=/memfd:"}
# Pages of shared memory that may lie elsewhere: a program touches them first where it runs, and this one is on any processor.
SHARE = {"frames": 1.0, "windows": 0.5}


class Numa:
    MARKS = ("<!-- numa -->", "<!-- end of numa -->")

    def __init__(self, guest, matrix):
        self.guest, self.matrix = guest, matrix
        self.results = []

    def run(self):
        for number, card in enumerate(self.guest.cards, 1):
            if card == VLAN:
                continue
            nic = self.matrix.find(number)
            for way in self.matrix.ways:
                if way == DPDK or self.matrix.impossible(card, way, "engine"):
                    continue
                result = {"card": card, "way": way}
                self.results.append(result)
                try:
                    result["pages"] = self.one(number, nic, way, "")
                    for kind, pages in result["pages"].items():
                        if pages and pages[NEAR] < SHARE[kind] * sum(pages):
                            raise Failure(f"{kind}: {pages} pages on the nodes, the card is on node {NEAR}")
                    self.one(number, nic, way, f"--cpu {FAR}")
                    result["outcome"] = "ok"
                except Failure as failure:
                    result.update(outcome="failed", said=str(failure))
                say(f"{card} {way}: {result}")

    def one(self, number, nic, way, flags):
        """Bytes both ways; pages of each kind by node."""
        guest, (v4, _) = self.guest, addresses(number)["engine"]
        pids = []
        try:
            pids.append(self.matrix.start("engine", f"shunt engine --nic {nic} {WAYS[way][0]} {flags} --address {v4}/24"))
            self.matrix.wait_for_engine(pids[0])
            pids.append(self.matrix.start("redis", f"shunt run --policy engine-only -- {REDIS} {v4}"))
            self.matrix.wait_to_serve("redis", pids[1])
            self.matrix.probe("down", v4)
            is_said = f"not on NUMA node {NEAR}" in guest.run("shunt status --json; cat /tmp/engine")
            if is_said != bool(flags):
                raise Failure(f"with {flags or 'no flag'}: that the engine is far from the card is {'' if is_said else 'not '}said")
            # A window without use gives its memory back.
            with guest.beside(sys.executable, PROBE, "slowly", v4) as transfer:
                try:
                    transfer.stdout.readline()
                    return self.pages()
                finally:
                    transfer.kill()
        finally:
            for pid in reversed(pids):
                self.matrix.end(pid)

    def pages(self):
        """Of the process that has most: a keeper and others have the same memory."""
        most = {kind: [0] * NODES for kind in KINDS}
        for pid in self.guest.run("pidof shunt").split():
            pages = {kind: [0] * NODES for kind in KINDS}
            for line in self.guest.run(f"cat /proc/{pid}/numa_maps", check=False).splitlines():
                on_nodes = {int(node): int(count) for node, count in re.findall(r"N(\d+)=(\d+)", line)}
                # Keeper and engine share a page, which is on whichever's node.
                if sum(on_nodes.values()) == 1:
                    continue
                for kind, name in KINDS.items():
                    if re.search(name, line):
                        for node, count in on_nodes.items():
                            pages[kind][node] += count
            most = {kind: max(most[kind], pages[kind], key=sum) for kind in KINDS}
        return most

    def failures(self):
        return [result for result in self.results if result["outcome"] == "failed"]

    def table(self):
        lines = ["| card, way | frames: pages on the card's node, of all | windows |", "|---|---|---|"]
        for result in self.results:
            if result["outcome"] == "ok":
                cells = [f"{pages[NEAR]} of {sum(pages)}" if sum(pages) else "the kernel's" for pages in result["pages"].values()]
            else:
                cells = [f"failed: {result['said']}", ""]
            lines.append(f"| {result['card']}, {result['way']} | {' | '.join(cells)} |")
        return "\n".join(lines)
