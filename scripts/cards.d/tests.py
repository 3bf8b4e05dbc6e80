"""testkit's parity programs over a card: one half of each in the guest, the other on this host. What both print is compared between the guest's kernel
and Shunt, to the letter."""

import contextlib
import os
import shutil
import subprocess
import sys
import time

from guest import ANSWER_SECONDS, VLAN, addresses
from matrix import DPDK, WAYS
from words import Failure, Skip, say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAMS = os.path.join(ROOT, "crates/shim/tests/programs")
sys.path.insert(0, PROGRAMS)
import run as parity  # noqa: E402

# Their folder in the guest: some have the name of another program.
FOLDER = "tests"
# Both halves of these are one process, or one of them is to have what the other one's host has: on two hosts the kernel's do not end, or
# end with that error.
OF_ONE_HOST = (
    "cancel_sockets", "closed_meanwhile", "every_option", "fast_open", "handler_calls", "handler_jumps", "listen_both", "listener_shut",
    "no_descriptor", "refused", "relisten_fork", "reuse_port", "table_udp", "udp_any", "udp_closed_early", "udp_corners", "udp_device", "udp_dual",
    "udp_messages_v6", "udp_peek", "udp_raw", "udp_reuse", "udp_shutdown",
)
QUICK = ("half_close", "reset", "sendfile", "udp_basic", "urgent")
# How a half is started, by whose address it has.
RUN = {"kernel": "", "engine": "shunt run --policy engine-only --"}
# Which half is in the guest.
SIDES = ("server", "client")
FIRST_PORT = 7100
HALF_SECONDS = 300


def compile_programs(folder, names):
    """The programs, in a folder of ours; their paths."""
    if not shutil.which("cc"):
        raise Skip("no C compiler for the parity programs: apt-get install gcc")
    built = parity.pathlib.Path(folder, "tests", "shared")
    built.mkdir(parents=True, exist_ok=True)
    with contextlib.redirect_stdout(sys.stderr):
        parity.build(names, built, [])
    return [str(built / name) for name in names]


def names_of(wanted, is_quick):
    """Of programs by name, of some or of all: those whose halves can be on two hosts, over IPv4 and over IPv6."""
    known = sorted(path.stem for path in parity.HERE.glob("*.c"))
    for name in wanted:
        if name not in known:
            raise Failure(f"--tests: there is no parity program {name}; crates/shim/tests/programs has them")
        if not fits(name):
            raise Failure(f"--tests: {name} needs both halves on one host, a link of its own, or a clock")
    chosen = wanted or (QUICK if is_quick else filter(fits, known))
    return [one for name in chosen for one in parity.variants(name)]


def fits(name):
    # Times mean nothing here.
    prints_times = "now()" in parity.source_of(name).read_text(encoding="utf-8")
    return name not in OF_ONE_HOST and not prints_times and not parity.needs_link(name)


class Tests:
    MARKS = ("<!-- tests -->", "<!-- end of tests -->")

    def __init__(self, guest, matrix, programs):
        self.guest, self.matrix = guest, matrix
        self.programs = {os.path.basename(path): path for path in programs}
        self.results = []
        # What the kernel's halves print, by cable, program and side.
        self.expected = {}
        self.port = FIRST_PORT

    def run(self):
        for number, card in enumerate(self.guest.cards, 1):
            if card == VLAN:
                continue
            for way in self.matrix.ways:
                if self.matrix.impossible(card, way, "engine"):
                    continue
                result = {"card": card, "way": way, "same": 0, "different": {}}
                self.results.append(result)
                try:
                    self.one(number, way, result)
                except Failure as failure:
                    result["different"]["the engine"] = str(failure)
                say(f"{card} {way}: {self.words(result)}")

    def one(self, number, way, result):
        nic, (v4, v6) = self.matrix.find(number), addresses(number)["engine"]
        with self.guest.given_away(nic) if way == DPDK else contextlib.nullcontext(nic) as served:
            engine = self.matrix.start("engine", f"shunt engine --nic {served} {WAYS[way][0]} --address {v4}/24 --address {v6}/64")
            try:
                self.matrix.wait_for_engine(engine)
                for name in self.programs:
                    for side in SIDES:
                        self.compare(number, name, side, result)
                self.matrix.judge(way, {})
            finally:
                self.matrix.end(engine)

    def compare(self, number, name, side, result):
        key = (number, name, side)
        try:
            if key not in self.expected:
                self.expected[key] = self.halves(number, name, side, "kernel")
            lines = parity.hunks(self.expected[key], self.halves(number, name, side, "engine"))
        except Failure as failure:
            # The others are run all the same.
            lines = str(failure).splitlines()
        if not lines:
            result["same"] += 1
            say(f"same  {name}, {side} in the guest")
            return
        shown = "\n".join(f"    {line}" for line in lines[: parity.LINES_SHOWN])
        result["different"][f"{name} ({side})"] = shown
        say(f"DIFFERENT  {name}, {side} in the guest\n{shown}")

    def halves(self, number, name, side, owner):
        """What both halves print: one in the guest, by the kernel's address or the engine's, and the other on this host."""
        self.port += 1
        guests, hosts = (addresses(number)[one][parity.is_v6(name)] for one in (owner, "host"))
        own = f"{RUN[owner]} /{FOLDER}/{name}"
        if side == "server":
            pid = self.guest.run(f"{own} server {guests} {self.port} >/tmp/half 2>&1 & echo $!").strip()
            sockets = "netstat -lntu" if owner == "kernel" else "shunt ss"
            self.guest.wait_for(f"{sockets} | grep -q '[:.]{self.port} ' || ! kill -0 {pid}", ANSWER_SECONDS, f"{name} that listens")
            client = self.guest.on_host(self.programs[name], "client", guests, str(self.port), seconds=HALF_SECONDS)
            self.guest.wait_for(f"! kill -0 {pid} 2>/dev/null", HALF_SECONDS, f"end of {name}, which serves")
            return f"{client.stdout}{client.stderr}-- server\n{self.guest.run('cat /tmp/half')}"
        with self.guest.beside(self.programs[name], "server", hosts, str(self.port)) as server:
            try:
                self.wait_to_serve(server)
                client = self.guest.run(f"timeout -s KILL {HALF_SECONDS} {own} client {hosts} {self.port}", seconds=2 * HALF_SECONDS, check=False)
                served = "".join(server.communicate(timeout=ANSWER_SECONDS))
            except subprocess.TimeoutExpired:
                served = "no end\n"
            finally:
                server.kill()
        return f"{client}\n-- server\n{served}"

    def wait_to_serve(self, server):
        """Until a program of this host has its socket; one that has ended needs none."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while server.poll() is None and time.monotonic() < deadline:
            for kind in ("tcp", "tcp6", "udp", "udp6"):
                with contextlib.suppress(OSError), open(f"/proc/{server.pid}/net/{kind}", encoding="ascii") as file:
                    if f":{self.port:04X} " in file.read():
                        return
            time.sleep(0.02)

    def failures(self):
        return [result for result in self.results if result["different"]]

    @staticmethod
    def words(result):
        told = f"{result['same']} the same"
        if result["different"]:
            told += f"; different: {', '.join(result['different'])}"
        return told

    def table(self):
        lines = ["| card, way | halves that print what they print on the kernel |", "|---|---|"]
        for result in self.results:
            lines.append(f"| {result['card']}, {result['way']} | {self.words(result)} |")
        return "\n".join(lines)
