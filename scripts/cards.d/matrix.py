"""Each card in each way: what the program in the guest and its peer on the host see."""

import contextlib
import json
import os
import shlex
import sys

from guest import ANSWER_SECONDS, VLAN, addresses
from words import Failure, say

# A way, how the engine is told of it, and what it then says that it uses.
WAYS = {
    "af_packet": ("--driver af_packet", ("af_packet", None)),
    "generic": ("--driver af_xdp --xdp-mode generic", ("af_xdp", "generic")),
    "native": ("--driver af_xdp --xdp-mode native", ("af_xdp", "native")),
    "zero-copy": ("--driver af_xdp --xdp-mode zero-copy", ("af_xdp", "zero-copy")),
    # Its mode is the name of DPDK's driver.
    "dpdk": ("--driver dpdk", ("dpdk", None)),
}
DPDK = "dpdk"
# Elsewhere the kernel, which has no part in the card, would be needed.
PLACES_OF_DPDK = ("engine", "cores")
# Where the engine runs and whose the addresses are: an engine process of one core and of two, one that shares the kernel's addresses, one inside the
# program; and an engine of one core with jumbo frames of 9,000 bytes.
PLACES = {"engine": "", "cores": "--cores 2", "shared": "--share", "inline": "", "jumbo": ""}
QUICK_PLACES = ("engine", "inline")
# Cells where the card or its driver has no such way, and who says so.
IMPOSSIBLE = {
    ("e1000e", "native"): "the kernel's e1000e has no XDP",
    ("e1000e", "zero-copy"): "the kernel's e1000e has no XDP",
    ("vmxnet3", "zero-copy"): "the kernel's vmxnet3 has XDP, but takes no memory of AF_XDP",
    ("vlan", DPDK): "an interface of a VLAN is no device",
    ("vlan", "native"): "an interface of a VLAN has no XDP of its own",
    ("vlan", "zero-copy"): "an interface of a VLAN has no XDP of its own",
}
# Followed by the addresses to listen on.
REDIS = "redis-server --port 6379 --protected-mode no --save '' --bind"
STREAMS = (("echo", "IPv4"), ("up", "IPv4"), ("down", "IPv4"), ("echo", "IPv6"), ("up", "IPv6"))
DATAGRAMS = (("datagrams", "IPv4"),)
# There a frame has to fit a page of 4 KiB with room for the kernel: cards refuse, or lose, longer ones.
OF_ONE_PAGE = ("native", "zero-copy")
# As QEMU has them.
ONE_QUEUE = ("e1000e", VLAN)
LOST_BY_ALL = "frames of 8,000 bytes do not reach the guest's kernel either"
PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "probe.py")
WIRE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wire.py")
# A group that a program in the guest joins.
GROUP = "239.90.90.90"
# The place whose frames are counted in a table.
COMPARED = "engine"
# Of frames that AF_XDP takes in the card's driver so many come as they are.
UNMERGED = 0.95
MTU, JUMBO_MTU = 1500, 9000


class NoSuchWay(Failure):
    """The card, or its driver, does not have it."""


class Matrix:
    # Between these lines of a document its table goes.
    MARKS = ("<!-- table -->", "<!-- end of table -->")
    WIRE_MARKS = ("<!-- wire -->", "<!-- end of wire -->")

    def __init__(self, guest, cards, ways, places):
        self.guest, self.cards, self.ways, self.places = guest, cards, ways, places
        self.results = []

    def prepare(self):
        """The kernel's own addresses on each card."""
        for number, _ in enumerate(self.cards, 1):
            if self.cards[number - 1] == VLAN:
                card = self.card_at(number)
                self.guest.run(f"ip link set {card} up; ip link add link {card} name {card}.7 type vlan id 7")
            nic = self.find(number)
            v4, v6 = addresses(number)["kernel"]
            self.guest.run(f"echo 0 >/proc/sys/net/ipv6/conf/{nic}/accept_dad; ip link set {nic} up; ip address add {v4}/24 dev {nic}; ip address add {v6}/64 dev {nic}")
            self.guest.wait_for(f"grep -q 1 /sys/class/net/{nic}/carrier", 30, "carrier")

    def run(self):
        self.prepare()
        for number, card in enumerate(self.cards, 1):
            nic = self.find(number)
            for way in self.ways:
                for place in self.places:
                    if way == DPDK and place not in PLACES_OF_DPDK:
                        continue
                    if place == "jumbo" and (way in OF_ONE_PAGE or card == VLAN):
                        continue
                    self.cell(number, card, nic, way, place)

    def find(self, number):
        """The guest's interface of a card."""
        card = self.card_at(number)
        return f"{card}.7" if self.cards[number - 1] == VLAN else card

    def card_at(self, number):
        """The guest's name of a card, by its hardware address."""
        found = self.guest.run(f"grep -l 02:00:00:90:{number:02x}:02 /sys/class/net/*/address | grep -v '[.]'")
        if not found:
            raise Failure(f"the guest has no card {number}")
        return found.split("/")[4]

    def cell(self, number, card, nic, way, place):
        result = {"card": card, "way": way, "place": place}
        self.results.append(result)
        if way == DPDK and self.impossible(card, way, place):
            result["outcome"] = "none"
            return
        try:
            changed = self.guest.given_away(nic) if way == DPDK else self.guest.changed(number, nic, place)
            with changed as served:
                try:
                    with self.looked_at(result):
                        result["probes"], result["counters"] = self.serve(number, served, way, place)
                except Failure as failure:
                    if place == "jumbo" and not self.kernel_hears_long_frames(number):
                        raise NoSuchWay(LOST_BY_ALL) from failure
                    raise
            result["outcome"] = "ok"
        except NoSuchWay as failure:
            result["said"] = str(failure)
            is_known = self.impossible(card, way, place) or result["said"] == LOST_BY_ALL
            result["outcome"] = "none" if is_known else "failed"
        except Failure as failure:
            result["said"] = str(failure)
            result["outcome"] = "failed"
        say(f"{card} {way} {place}: {result['outcome']} {result.get('said', '')}")

    @contextlib.contextmanager
    def looked_at(self, result):
        """What passes a card's cable meanwhile; each frame of the guest's is to be right. Those of a VLAN pass no TAP as they are."""
        card = result["card"]
        if card == VLAN:
            yield
            return
        with self.guest.beside(sys.executable, WIRE, card) as wire:
            try:
                if wire.stdout.readline().strip() != "listening":
                    raise Failure(f"{WIRE}: {wire.stderr.read()}")
                yield
                wire.terminate()
                said, error = wire.communicate(timeout=ANSWER_SECONDS)
            finally:
                wire.kill()
        if wire.returncode != 0:
            raise Failure(f"{WIRE}: {error}")
        seen = result["wire"] = json.loads(said)
        most = JUMBO_MTU if result["place"] == "jumbo" else MTU
        if seen["wrong"] or seen["largest"] > most:
            raise Failure(f"on the cable: {seen}")
        on_cable, received = seen["frames"]["to the guest"] - seen["refused"], result["counters"]["rx_frames"]
        # They are merged where they come by way of the kernel, in queues without a socket.
        if result["way"] in OF_ONE_PAGE and result["place"] == COMPARED and received < on_cable * UNMERGED:
            raise Failure(f"{on_cable} frames came on the cable, and {received} to the engine: not all by AF_XDP")

    def kernel_hears_long_frames(self, number):
        """Whether the guest's own kernel gets a long answer over the card as it is now."""
        host = addresses(number)["host"][0]
        return "heard" in self.guest.run(f"ping -c 1 -W 3 -s 8000 {host} >/dev/null && echo heard", check=False)

    def serve(self, number, nic, way, place):
        guest, (v4, v6) = self.guest, addresses(number)["kernel" if place == "shared" else "engine"]
        own = f"--nic {nic} {WAYS[way][0]} {PLACES[place]}"
        if place != "shared":
            own += f" --address {v4}/24 --address {v6}/64"
        programs = (
            ("redis", f"{REDIS} {v4} {v6}", STREAMS),
            ("socat", f"socat -T 60 UDP4-LISTEN:9000,bind={v4} PIPE", DATAGRAMS),
            ("group", f"socat -T 60 UDP4-RECVFROM:9001,ip-add-membership={GROUP}:{v4} PIPE", (("group", "IPv4"),)),
        )
        started, done, counters = [], [], {}
        errors = self.checksum_errors()
        try:
            if place != "inline":
                started.append(self.start("engine", f"shunt engine {own}"))
                self.wait_for_engine(started[-1])
                run = "shunt run --policy engine-only --"
            else:
                run = f"shunt run --engine-mode inline --policy engine-only {own} --"
            for name, line, probes in programs:
                started.append(self.start(name, f"{run} {line}"))
                self.wait_to_serve(name, started[-1])
                for probe, family in probes:
                    more = (GROUP, addresses(number)["host"][0]) if probe == "group" else ()
                    self.probe(probe, v4 if family == "IPv4" else v6, *more)
                    done.append(f"{probe} over {family}")
                # That program ends with its answer, and so does an engine inside it.
                if place != "inline" or name != "group":
                    counters = self.judge(way, counters)
                if place == "inline":
                    self.end(started.pop())
            if (now := self.checksum_errors()) != errors:
                raise Failure(f"the host's kernel counted checksum errors: {errors} before, {now} now")
            return done, counters
        finally:
            for pid in reversed(started):
                self.end(pid)

    def checksum_errors(self):
        """Of IP, TCP and UDP, as the host's side of the cables counts them."""
        said = self.guest.on_host("cat", "/proc/net/snmp", "/proc/net/netstat").stdout.splitlines()
        pairs = zip(said[::2], said[1::2])
        return {
            f"{names.split()[0]}{name}": count
            for names, counts in pairs
            for name, count in zip(names.split(), counts.split())
            if name.endswith("CsumErrors") or name == "InErrs"
        }

    def judge(self, way, before):
        """Whether the engine used the way that it was told of; and what it counted until now, with what ended engines had."""
        status = json.loads(self.guest.run("shunt status --json"))
        used = (status["driver"], status["driver_mode"] if way != DPDK else None)
        if used != WAYS[way][1]:
            raise NoSuchWay(f"{' '.join(word for word in used if word)} serves instead: {' '.join(status['complaints'])}")
        if status["complaints"]:
            raise Failure(f"the engine complains: {' '.join(status['complaints'])}")
        now = {**status["driver_counters"], "retransmitted": status["stack_counters"].get("TcpRetransSegs", 0)}
        if status["mode"] == "process":
            return now
        return {name: count + before.get(name, 0) for name, count in now.items()}

    def start(self, name, line):
        return self.guest.run(f"{line} >/tmp/{name} 2>&1 & echo $!")

    def said(self, name):
        return self.guest.run(f"tail -n 8 /tmp/{name}", check=False)

    def wait_for_engine(self, pid):
        try:
            self.guest.wait_for(f"shunt status >/dev/null || ! kill -0 {pid.strip()}", 60, "engine")
            self.guest.run("shunt status")
        except Failure as failure:
            said = self.said("engine")
            raise (NoSuchWay if "fewer queues" in said else Failure)(said) from failure

    def wait_to_serve(self, name, pid):
        """Until the program has its sockets."""
        port = {"redis": 6379, "socat": 9000, "group": 9001}[name]
        self.guest.wait_for(f"shunt ss | grep -q ':{port} ' || {{ tail -n 2 /tmp/{name}; false; }}", 60, f"{name} (process {pid.strip()})")

    def probe(self, what, address, *more):
        ran = self.guest.on_host(sys.executable, PROBE, what, address, *more)
        if ran.returncode != 0:
            raise Failure(f"{what} with {address}: {(ran.stderr.strip() or 'no word').splitlines()[-1]}")

    def end(self, pid):
        self.guest.run(f"finish {shlex.quote(pid.strip())}")

    @staticmethod
    def impossible(card, way, place):
        """Why a card cannot be served in a way; no word where it can."""
        one_queue = card in ONE_QUEUE and place == "cores" and way != "af_packet"
        return IMPOSSIBLE.get((card, way)) or ("one queue" if one_queue else None)

    def failures(self):
        return [result for result in self.results if result["outcome"] == "failed"]

    def summary(self):
        count = {outcome: sum(result["outcome"] == outcome for result in self.results) for outcome in ("ok", "none", "failed")}
        return f"{count['ok']} ways served, {count['none']} that the card has not, {count['failed']} failed"

    def table(self):
        lines = ["| card | " + " | ".join(self.ways) + " |", "|---|" + "---|" * len(self.ways)]
        for card in self.cards:
            cells = [self.words(card, way) for way in self.ways]
            lines.append(f"| {card} | " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def wire_table(self):
        """What passed the cables of engines of one core."""
        lines = ["| card, way | sums of the guest's frames: by the program, by the card; cut by the card | to the guest: frames on the cable, frames that the engine got |", "|---|---|---|"]
        for result in self.results:
            if result["place"] == COMPARED and result["outcome"] == "ok" and "wire" in result:
                frames = result["wire"]["frames"]
                sent = f"{frames['complete']}, {frames['summed by the card']}; {frames['cut by the card']}"
                lines.append(f"| {result['card']}, {result['way']} | {sent} | {frames['to the guest']}, {result['counters']['rx_frames']} |")
        return "\n".join(lines)

    def words(self, card, way):
        """A cell of the table: where all places are alike, one word."""
        cells = [result for result in self.results if (result["card"], result["way"]) == (card, way)]
        words = {}
        for cell in cells:
            outcome = cell["outcome"]
            word = f"not possible: {self.impossible(card, way, cell['place']) or cell['said']}" if outcome == "none" else outcome
            words.setdefault(word, []).append(cell["place"])
        if len(words) == 1:
            return next(iter(words))
        return "; ".join(f"{', '.join(places)}: {word}" for word, places in words.items())
