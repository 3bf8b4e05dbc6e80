"""Two hosts on an imperfect cable, an engine on host a, servers on both, and what is on their disks."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
# The same for the whole run: what a real path does now and then.
IMPAIRMENTS = "loss=0.1%,duplicate=0.1%,corrupt=0.02%,reorder=0.2%"
PEER, ENGINE, INLINE = "10.77.0.2", "10.77.0.11", "10.77.0.13"
NAME = "@shunt/soak"
SIZES = (10_000, 100_000, 1_000_000, 4_000_000)
FILES_OF_EACH_SIZE = 2
PATIENCE_S = 30


def say(text):
    print(f"soak: {text}", file=sys.stderr, flush=True)


class Failure(Exception):
    """The run cannot go on; what is said is for the user."""


class World:
    """Everything that ends with the run."""

    def __init__(self, shunt, seed, impairments=IMPAIRMENTS):
        self.shunt, self.seed, self.impairments = str(shunt), seed, impairments
        self.name = f"soak-{os.getpid()}"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shunt-soak-"))
        self.folder.chmod(0o755)
        self.lock = threading.Lock()
        self.children = []
        self.engine_starts = 0
        self.opened = 0
        self.is_over = threading.Event()
        self.files = self._write_files()

    def __enter__(self):
        cable = ["--cable", "tap", "--impair", self.impairments, "--seed", str(self.seed)] if self.impairments else []
        up = ["lab", "up", "--name", self.name, *cable]
        done = subprocess.run([self.shunt, *up], capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(self.folder)
            raise Failure(f"shunt lab up: {done.stderr.strip()}")
        return self

    def __exit__(self, *_):
        self.is_over.set()
        with self.lock:
            children = list(self.children)
        for child in children:
            end(child)
        subprocess.run([self.shunt, "lab", "down", "--name", self.name], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_files(self):
        """Files without repetition, of every size, by name."""
        drawn = random.Random(self.seed)
        files = {}
        for size in SIZES:
            for number in range(FILES_OF_EACH_SIZE):
                name = f"{size}-{number}"
                files[name] = drawn.randbytes(size)
                (self.folder / name).write_bytes(files[name])
        return files

    def words_on(self, host, words):
        return [self.shunt, "lab", "exec", "--name", self.name, host, "--", *words]

    def start(self, host, words, **options):
        """A program on a host; it ends with the run at the latest. Its process is the program's own."""
        options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL, **options}
        with self.lock:
            if self.is_over.is_set():
                raise Failure("the run is over")
            child = subprocess.Popen(self.words_on(host, words), start_new_session=True, **options)
            self.children = [one for one in self.children if one.poll() is None] + [child]
        return child

    def run(self, host, words):
        """Runs a short command of the faults; what it says does not matter."""
        return subprocess.run(self.words_on(host, words), capture_output=True, text=True, timeout=PATIENCE_S)

    def start_engine(self):
        log = open(self.folder / f"engine-{self.engine_starts}.log", "w+")
        self.engine = self.start("a", [self.shunt, "engine", "--name", NAME], stderr=log)
        self.engine_starts += 1
        wait_for("engine that serves", lambda: "serving" in self.engine_log(), self.engine_log)

    def engine_pid(self):
        """The process that serves now."""
        if self.engine.poll() is not None:
            raise Failure(f"the engine has ended: {self.engine_log()[-500:]}")
        kept = self.status().get("kept")
        if not kept:
            raise Failure("the engine does not answer, or has no keeper")
        return kept["pid"]

    def engine_log(self):
        return (self.folder / f"engine-{self.engine_starts - 1}.log").read_text(errors="replace")

    def await_next_engine(self, pid):
        """After its process was killed: the one that its keeper starts."""
        wait_for("engine after one that was killed", lambda: self.status().get("kept", {}).get("pid", pid) != pid, self.engine_log)

    def status(self):
        """The report of the engine, or nothing while it does not answer."""
        done = self.run("a", [self.shunt, "status", "--engine", NAME, "--json"])
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            return {}

    def start_servers(self):
        """Files by nginx, values by redis: on Shunt at host a, and files on the kernel of host b, with one that takes files."""
        self.nginx = {host: self.start_nginx(host) for host in "ab"}
        self.redis = self.start_redis()
        self.sink = self.start("b", [sys.executable, str(HERE / "sink.py"), PEER, "9100", str(self.folder)])
        for host, address in (("a", f"{PEER}:8080"), ("a", f"{PEER}:9100"), ("b", f"{ENGINE}:8080")):
            url = f"http://{address}/10000-0"
            wait_for(url, lambda: self.run(host, ["curl", "-s", "-f", "-o", "/dev/null", "-m", "2", url]).returncode == 0)

    def start_nginx(self, host):
        home = self.folder / f"nginx-{host}"
        home.mkdir(exist_ok=True)
        address = {"a": ENGINE, "b": PEER}[host]
        (home / "nginx.conf").write_text(
            f"daemon off; user root; worker_processes 1; pid {home}/pid; error_log {home}/log;\n"
            "events { worker_connections 256; }\n"
            f"http {{ access_log off; client_body_temp_path {home}/body; proxy_temp_path {home}/p; fastcgi_temp_path {home}/f;\n"
            f"uwsgi_temp_path {home}/u; scgi_temp_path {home}/s; sendfile on;\n"
            f"server {{ listen {address}:8080; root {self.folder}; }} }}\n")
        words = ["nginx", "-p", str(home), "-c", str(home / "nginx.conf"), "-e", str(home / "log")]
        return self.start(host, self.on_shunt(words) if host == "a" else words)

    def start_redis(self):
        words = ["redis-server", "--bind", ENGINE, "--save", "", "--protected-mode", "no", "--dir", str(self.folder)]
        return self.start("a", self.on_shunt(words))

    def on_shunt(self, words, *flags):
        # Of an engine that is named none is started in its place.
        named = [] if "--engine-mode=inline" in flags else ["--engine", NAME]
        return [self.shunt, "run", "--policy", "engine-only", *named, *flags, "--", *words]


def wait_for(what, condition, told=lambda: ""):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"no {what} within {PATIENCE_S} s. {told()[-500:]}")
        time.sleep(0.05)


def end(child, number=signal.SIGTERM):
    """Ends a program and all that it has started."""
    for one in (signal.SIGCONT, number, signal.SIGKILL):
        try:
            os.killpg(child.pid, one)
        except ProcessLookupError:
            break
        if one == signal.SIGCONT:
            continue
        try:
            child.wait(3)
        except subprocess.TimeoutExpired:
            continue
    child.wait()
