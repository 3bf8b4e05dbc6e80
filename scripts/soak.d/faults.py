"""What happens to the programs, the engine, the hosts and the cable while files are carried."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from world import ENGINE, NAME, PEER, Failure, end

# A connection may fail for a fault that ended so long before: its program hears of it late.
AFTERMATH_S = 20
SETUP_S = 1
# What does not go on with the next engine (docs/reliability.md).
ENGINE_ENDS = frozenset({"setup"})


@dataclass
class Fault:
    """One that has been."""

    kind: str
    began: float
    ended: float
    # What did not live through it: transfers that need it may fail.
    ends: frozenset = frozenset()

    def excuses(self, transfer):
        # A connection that is being made when its engine dies may be reset.
        if "setup" in self.ends and self.began - SETUP_S <= transfer.began <= self.ended + SETUP_S:
            return True
        overlaps = self.began <= transfer.ended and transfer.began <= self.ended + AFTERMATH_S
        return overlaps and bool(self.ends & (transfer.needs | {transfer.kind}))


class Faults(threading.Thread):
    """Lets something happen every few seconds, each kind as often as the others."""

    def __init__(self, world, workers, stop, seed, pause_s):
        super().__init__(name="faults", daemon=True)
        self.world, self.workers, self.stop, self.pause_s = world, workers, stop, pause_s
        self.drawn = random.Random(f"{seed} faults")
        self.faults, self.wrong, self.trouble = [], [], None
        self.kinds = [
            self.kill_a_program, self.end_a_program, self.stop_a_program, self.kill_the_engine, self.stop_the_engine,
            self.upgrade_the_engine, self.refuse_an_upgrade,
            self.take_the_link_down, self.change_the_mtu, self.change_the_route, self.forget_the_neighbours,
            self.change_the_kernels_address, self.use_up_memory, self.keep_processors_busy, self.send_rubbish, self.look_at_the_engine,
            self.start_a_second_engine, self.kill_the_peers_server, self.start_our_server_again,
        ]

    def run(self):
        bag = []
        try:
            while not self.stop.wait(self.pause_s * self.drawn.uniform(0.5, 1.5)):
                if not bag:
                    bag = self.drawn.sample(self.kinds, len(self.kinds))
                self.make(bag.pop())
        except (Failure, OSError, subprocess.SubprocessError) as failure:
            self.trouble = f"the fault after {self.faults[-1].kind if self.faults else 'the start'}: {failure}"

    def make(self, kind):
        began = time.monotonic()
        ends = kind() or frozenset()
        name = kind.__name__.replace("_", " ")
        self.faults.append(Fault(name, began, time.monotonic(), frozenset(ends)))

    # Programs.

    def signal_a_program(self, *numbers):
        running = [(worker, program) for worker in self.workers if (program := worker.running)]
        if not running:
            return frozenset()
        worker, program = self.drawn.choice(running)
        for number in numbers:
            if number is None:
                time.sleep(self.drawn.uniform(0.2, 2))
                continue
            try:
                os.killpg(program.pid, number)
            except ProcessLookupError:
                break
        return frozenset({worker.kind.name})

    def kill_a_program(self):
        return self.signal_a_program(signal.SIGKILL)

    def end_a_program(self):
        return self.signal_a_program(signal.SIGTERM)

    def stop_a_program(self):
        self.signal_a_program(signal.SIGSTOP, None, signal.SIGCONT)

    # The engine.

    def kill_the_engine(self):
        pid = self.world.engine_pid()
        os.kill(pid, signal.SIGKILL)
        self.world.await_next_engine(pid)
        return ENGINE_ENDS

    def upgrade_the_engine(self):
        done = self.world.run("a", [self.world.shunt, "upgrade", "--engine", NAME])
        if done.returncode:
            self.wrong.append(f"shunt upgrade: status {done.returncode}: {done.stderr.strip()}")
        return ENGINE_ENDS

    def refuse_an_upgrade(self):
        """The file is no engine: the one that runs goes on, and nothing ends."""
        done = self.world.run("a", [self.world.shunt, "upgrade", "--engine", NAME, "--with", "/bin/true"])
        if done.returncode != 1:
            self.wrong.append(f"shunt upgrade --with /bin/true: status {done.returncode}: {done.stderr.strip()}")

    def stop_the_engine(self):
        pid = self.world.engine_pid()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.drawn.uniform(0.1, 1))
        os.kill(pid, signal.SIGCONT)

    def look_at_the_engine(self):
        """All who look at an engine at the same time."""
        shunt = self.world.shunt
        asked = [["status", "--all"], ["ss"], ["stacks"], ["metrics"], ["status", "--json"], ["ss", "--json"]]
        looking = [self.world.start("a", [shunt, *words], stderr=subprocess.PIPE, text=True) for words in asked]
        for words, program in zip(asked, looking):
            _, said = program.communicate(timeout=30)
            if program.returncode:
                self.wrong.append(f"shunt {' '.join(words)}: status {program.returncode}: {said.strip()}")

    def start_a_second_engine(self):
        """It is refused, and disturbs nobody."""
        program = self.world.start("a", [self.world.shunt, "engine", "--name", "@shunt/soak-second"], stderr=subprocess.PIPE, text=True)
        try:
            _, said = program.communicate(timeout=10)
            if program.returncode != 2:
                self.wrong.append(f"a second engine at the address: status {program.returncode}: {said.strip()}")
        except subprocess.TimeoutExpired:
            self.wrong.append("a second engine at the address serves")
            end(program)

    # The hosts and the cable.

    def ip(self, host, *words):
        done = self.world.run(host, ["ip", *words])
        if done.returncode:
            raise Failure(f"ip {' '.join(words)}: {done.stderr.strip()}")

    def take_the_link_down(self):
        host = self.drawn.choice("ab")
        self.ip(host, "link", "set", "eth0", "down")
        time.sleep(self.drawn.uniform(0.1, 1.5))
        self.ip(host, "link", "set", "eth0", "up")
        return {f"route of {host}"}

    def change_the_mtu(self):
        host, mtu = self.drawn.choice("ab"), self.drawn.choice((1280, 1400, 1492))
        self.ip(host, "link", "set", "eth0", "mtu", str(mtu))
        time.sleep(self.drawn.uniform(0.5, 2))
        self.ip(host, "link", "set", "eth0", "mtu", "1500")

    def change_the_route(self):
        to = {"a": PEER, "b": ENGINE}
        host = self.drawn.choice("ab")
        self.ip(host, "route", "replace", "blackhole", f"{to[host]}/32")
        time.sleep(self.drawn.uniform(0.1, 1.5))
        self.ip(host, "route", "replace", f"{to[host]}/32", "dev", "eth0")
        self.ip(host, "route", "del", f"{to[host]}/32")
        return {f"route of {host}"}

    def forget_the_neighbours(self):
        for host in "ab":
            self.ip(host, "neigh", "flush", "dev", "eth0")

    def change_the_kernels_address(self):
        self.ip("a", "address", "add", "10.77.0.99/24", "dev", "eth0")
        time.sleep(self.drawn.uniform(0.1, 1))
        self.ip("a", "address", "del", "10.77.0.99/24", "dev", "eth0")

    def use_up_memory(self):
        end(self.world.start("a", [sys.executable, "-c", "import time; held = bytearray(1 << 30); held[::4096] = held[::4096]; time.sleep(1)"]))

    def keep_processors_busy(self):
        loops = [self.world.start("b", ["sh", "-c", "while :; do :; done"]) for _ in range(2 * os.cpu_count())]
        time.sleep(self.drawn.uniform(1, 3))
        for loop in loops:
            end(loop)

    def send_rubbish(self):
        """Frames of random bytes, most with the beginning of a segment for the engine, from an interface of the peer."""
        rubbish = self.world.start("b", [sys.executable, "-c", RUBBISH, ENGINE, str(self.drawn.random())], stderr=subprocess.PIPE, text=True)
        _, said = rubbish.communicate(timeout=30)
        if rubbish.returncode:
            raise Failure(f"rubbish: {said}")

    # Servers.

    def kill_the_peers_server(self):
        end(self.world.nginx["b"], signal.SIGKILL)
        self.world.nginx["b"] = self.world.start_nginx("b")
        return {"nginx-b"}

    def start_our_server_again(self):
        if self.drawn.random() < 0.5:
            end(self.world.nginx["a"])
            self.world.nginx["a"] = self.world.start_nginx("a")
            return {"nginx-a"}
        end(self.world.redis)
        self.world.redis = self.world.start_redis()
        return {"redis"}


RUBBISH = """
import random, socket, struct, sys
drawn = random.Random(sys.argv[2])
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(("eth0", 0))
own = open("/sys/class/net/eth0/address").read().strip()
neighbours = [line.split() for line in open("/proc/net/arp")]
macs = [line[3] for line in neighbours if line[0] == sys.argv[1]] or ["ff:ff:ff:ff:ff:ff"]
mac = lambda text: bytes(int(part, 16) for part in text.split(":"))
to, source, address = mac(macs[0]), mac(own), socket.inet_aton(sys.argv[1])
for number in range(3000):
    rest = drawn.randbytes(drawn.randrange(0, 200))
    if number % 3 == 0:  # SYNs from nowhere
        rest = struct.pack("!HHIIBBHHH", drawn.randrange(65536), 8080, drawn.randrange(1 << 32), 0, 5 << 4, 2, 1000, 0, 0)
        source_ip = bytes((10, 77, drawn.randrange(1, 256), drawn.randrange(1, 255)))
        pseudo = source_ip + address + struct.pack("!HH", 6, len(rest))
        total = sum(struct.unpack(f"!{(len(pseudo) + len(rest)) // 2}H", pseudo + rest))
        total = (total & 0xffff) + (total >> 16)
        rest = rest[:16] + struct.pack("!H", ~(total + (total >> 16)) & 0xffff) + rest[18:]
    else:
        source_ip = drawn.randbytes(4)
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(rest), drawn.randrange(65536), 0, 64, drawn.choice((1, 6, 6, 17, drawn.randrange(256))) if number % 3 else 6, 0, source_ip, address)
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xffff) + (total >> 16)
    head = head[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xffff) + head[12:]
    frame = to + source + b"\\x08\\x00" + head + rest
    if number % 10 == 9:
        frame = to + source + drawn.randbytes(drawn.randrange(2, 100))
    try:
        out.send(frame)
    except OSError:
        pass
"""
