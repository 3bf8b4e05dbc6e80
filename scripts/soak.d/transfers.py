"""Programs that nobody changed, which carry files whose every byte is known, one after the other."""

import random
import subprocess
import threading
import time
from dataclasses import dataclass

from world import ENGINE, INLINE, PEER, Failure, end

# A transfer that takes longer hangs.
DEADLINE_S = 90
NO_ROUTE = ("unreachable", "the interface is down", "Failed to connect", "Invalid argument")


@dataclass
class Transfer:
    """One that has ended."""

    kind: str
    began: float
    ended: float
    bytes: int = 0
    # "": it went well; else what the program said.
    trouble: str = ""
    # Bytes that are others than those of the file.
    mismatch: str = ""
    # What it needed, besides the cable.
    needs: frozenset = frozenset()


@dataclass
class Kind:
    """How a file is carried: by which program, where, and what has to live meanwhile."""

    name: str
    host: str
    words: callable
    needs: frozenset
    # Whether the file is what was received, or what a server says of it.
    takes: bool = False


def fetch(from_where, *flags):
    return lambda world, name, out: world.on_shunt(["curl", "-sS", "-f", "-o", out, f"http://{from_where}/{name}"], *flags)


def kinds():
    peer, sink = frozenset({"nginx-b"}), frozenset({"sink"})
    own = f"{PEER}:8080"
    return [
        Kind("curl from the peer", "a", fetch(own), peer, True),
        Kind("curl from the peer, engine inside", "a", fetch(own, "--engine-mode=inline", "--address", f"{INLINE}/24"), peer, True),
        Kind("curl from the peer, supervised", "a", fetch(own, "--supervise", "only"), peer, True),
        Kind("static busybox wget from the peer", "a",
             lambda world, name, out: world.on_shunt(["busybox", "wget", "-q", "-O", out, f"http://{own}/{name}"]),
             peer, True),
        Kind("curl to the peer", "a",
             lambda world, name, out: world.on_shunt(
                 ["curl", "-sS", "-f", "-H", "Expect:", "-o", out, "-T", str(world.folder / name), f"http://{PEER}:9100/{name}"]),
             sink),
        Kind("python to the peer", "a",
             lambda world, name, out: world.on_shunt(["python3", "-c", PUT, str(world.folder / name), PEER, name, out]), sink),
        Kind("nginx to the peer's curl", "b",
             lambda world, name, out: ["curl", "-sS", "-f", "-o", out, f"http://{ENGINE}:8080/{name}"],
             frozenset({"nginx-a"}), True),
        Kind("redis with the peer's redis-cli", "b",
             lambda world, name, out: ["sh", "-c", REDIS, "sh", ENGINE, name, str(world.folder / name), out],
             # It makes two connections, the second some time later.
             frozenset({"redis", "setup"}), True),
    ]


PUT = """
import http.client, sys
path, host, name, out = sys.argv[1:]
to = http.client.HTTPConnection(host, 9100)
to.request("PUT", "/" + name, open(path, "rb").read())
open(out, "wb").write(to.getresponse().read())
"""
# redis-cli adds a line's end; a server that was started in between has no value.
REDIS = 'test "$(redis-cli -h "$1" -x set "$2" < "$3")" = OK && redis-cli -h "$1" get "$2" | head -c -1 > "$4" && test -s "$4"'


class Worker(threading.Thread):
    """Makes transfers of one kind until the run is over."""

    def __init__(self, world, kind, stop, seed):
        super().__init__(name=kind.name, daemon=True)
        self.world, self.kind, self.stop = world, kind, stop
        self.drawn = random.Random(f"{seed} {kind.name}")
        self.out = world.folder / f"out-{kind.name.replace(' ', '-')}"
        self.transfers, self.running = [], None

    def run(self):
        while not self.stop.is_set():
            try:
                self.transfers.append(self.transfer(self.drawn.choice(sorted(self.world.files))))
            except Failure:
                return

    def transfer(self, name):
        self.out.unlink(missing_ok=True)
        words = self.kind.words(self.world, name, str(self.out))
        said = self.world.folder / f"{self.out.name}.log"
        began = time.monotonic()
        with open(said, "w") as log:
            program = self.running = self.world.start(self.kind.host, words, stderr=log)
            try:
                status = program.wait(DEADLINE_S)
                trouble = "" if status == 0 else f"status {status}: {said.read_text(errors='replace').strip()[-300:]}"
            except subprocess.TimeoutExpired:
                trouble = f"no end within {DEADLINE_S} s"
            self.running = None
            end(program)
        # A host without a route, or whose route leads nowhere, begins nothing new.
        route = {f"route of {self.kind.host}"} if any(word in trouble for word in NO_ROUTE) else set()
        done = Transfer(self.kind.name, began, time.monotonic(), trouble=trouble, needs=self.kind.needs | route)
        return self.judge(name, done)

    def judge(self, name, done):
        content = self.world.files[name]
        received = self.out.read_bytes() if self.out.exists() else b""
        if self.kind.takes:
            done.bytes = len(received)
            # Also what came before a transfer broke off.
            if content[: len(received)] != received or (not done.trouble and len(received) != len(content)):
                done.mismatch = f"{self.kind.name}: {len(received)} bytes received, not those of {name}"
        elif not done.trouble:
            done.bytes = len(content)
            if received != b"same":
                done.mismatch = f"{self.kind.name}: the peer received another {name}"
        return done
