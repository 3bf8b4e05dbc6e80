"""A host of its own for one run of a suite: a lab, an engine where the way wants one, programs with deadlines."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

# How each way starts a program; the kernel's is the reference.
WAYS = {
    "kernel": [],
    "loopback": ["--loopback", "--policy", "engine-only"],
    "engine": ["--policy", "engine-only"],
    "supervised": ["--loopback", "--policy", "engine-only", "--supervise", "only"],
    "inline": ["--loopback", "--policy", "engine-only", "--engine-mode=inline"],
}
# Where a lab's host `a` leaves an address for an engine.
ENGINE_ADDRESS = "10.77.0.11"
# Set when no run is to go on.
STOP = threading.Event()
COUNTED = ("ActiveOpens", "PassiveOpens", "InSegs", "OutSegs", "OutRsts")


class Failure(Exception):
    """This machine, or Shunt's own commands, kept a run from being made."""


def say(text):
    print(text, file=sys.stderr, flush=True)


class World:
    """Host `a` of a lab of its own; removed with everything that runs there."""

    def __init__(self, shunt, way, label):
        self.shunt, self.way, self.label = shunt, way, label
        self.name = f"outside-{label}-{os.getpid()}"
        # What servers and clients use that can be told.
        self.address = ENGINE_ADDRESS if way == "engine" else "127.0.0.1"
        self.engine = None
        self.folder = tempfile.TemporaryDirectory(prefix="outside-")

    def __enter__(self):
        self._command("lab", "up", "--name", self.name)
        if WAYS[self.way] and self.way != "inline":
            self._start_engine()
        return self

    def __exit__(self, *_):
        if self.engine:
            self.engine.terminate()
            try:
                self.engine.wait(10)
            except subprocess.TimeoutExpired:
                self.engine.kill()
        subprocess.run([self.shunt, "lab", "down", "--name", self.name], capture_output=True, timeout=60)
        self.folder.cleanup()

    def _command(self, *arguments):
        done = subprocess.run([self.shunt, *arguments], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise Failure(f"shunt {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _inside(self, *line):
        return [self.shunt, "lab", "exec", "--name", self.name, "a", "--", *line]

    def _start_engine(self):
        path = os.path.join(self.folder.name, "engine.log")
        with open(path, "w") as log:
            self.engine = subprocess.Popen(self._inside(self.shunt, "engine"), stderr=log, start_new_session=True)
        deadline = time.monotonic() + 20
        while "serving" not in open(path).read():
            if self.engine.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"the engine does not serve: {open(path).read()}")
            time.sleep(0.02)

    def kernel_tcp(self):
        """What the kernel of this host has had to do with TCP (proc_net(5))."""
        text = self._command("lab", "exec", "--name", self.name, "a", "--", "cat", "/proc/net/snmp")
        names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
        counters = dict(zip(names, values))
        return {name: int(counters[name]) for name in COUNTED}

    def engine_opens(self):
        """Connections that the engine has opened, 0 without one; None where it has ended, as those inside programs have."""
        if self.way == "kernel":
            return 0
        if not self.engine:
            return None
        try:
            text = self._command("lab", "exec", "--name", self.name, "a", "--", self.shunt, "status", "--json")
            return json.loads(text)["stack_counters"]["TcpActiveOpens"]
        except Failure:
            return None

    def run(self, line, deadline, cwd=None, env=None, told=None):
        """Runs a program to its end or its deadline: its status (None: it was ended) and what it printed.

        `told` says how far it is, for the line of progress.
        """
        way = WAYS[self.way]
        line = self._inside(*([self.shunt, "run", *way, "--"] if way else []), *line)
        path = os.path.join(self.folder.name, "output")
        with open(path, "w") as output:
            program = subprocess.Popen(line, cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = self._wait(program, deadline, told)
        finally:
            end(program)
        with open(path, errors="replace") as output:
            return status, output.read()

    def _wait(self, program, deadline, told):
        start = said = time.monotonic()
        while True:
            try:
                return program.wait(0.5)
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if STOP.is_set():
                raise Failure(f"{self.label}: interrupted")
            if now - start > deadline:
                return None
            if now - said > 10:
                said = now
                say(f"  {self.label}: {now - start:.0f} s{', ' + told() if told else ''}")


def end(program):
    """Ends what is left of a program's process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(program.pid, number)
        except ProcessLookupError:
            break
        time.sleep(0.2)
    program.wait()
