"""One sweep as shards: each is a pure function of the scenario and its number, so it may run anywhere,
and more than once. `shunt sim merge` joins them to the bytes of a sweep on one machine."""

import dataclasses
import hashlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

# A node that does not take a connection by then is not there.
REACHED_S = 10


class SweepError(Exception):
    """Why a sweep could not be done."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What to sweep."""

    scenario: str
    axes: list = dataclasses.field(default_factory=list)
    settings: list = dataclasses.field(default_factory=list)
    shards: int = 64
    retries: int = 3
    shunt: str = "shunt"

    def arguments(self) -> list:
        """The flags that every shard is given."""
        flags = []
        for axis in self.axes:
            flags += ["--axis", axis]
        for setting in self.settings:
            flags += ["--set", setting]
        return flags


def compute_shard(shunt, text, flags, index, count) -> bytes:
    """Computes one shard wherever it is called; returns its lines."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = pathlib.Path(folder, "scenario.toml")
        scenario.write_text(text, encoding="utf-8")
        out = pathlib.Path(folder, "part.jsonl")
        # One thread: the cluster schedules one shard per processor.
        command = [shunt, "sim", "sweep", str(scenario), "--jobs", "1"]
        command += ["--shard", f"{index}/{count}", "--out", str(out), *flags]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            message = done.stderr.decode(errors="replace").strip()
            raise SweepError(f"shard {index} of {count}: {message}")
        return out.read_bytes()


def run(sweep: Sweep, out, address=None, progress=None) -> None:
    """Runs a sweep on a Ray cluster (this machine without an address) and writes the merged file."""
    if sweep.shards < 1:
        raise SweepError(f"{sweep.shards} shards: there must be at least one")
    try:
        import ray
    except ImportError as error:
        raise SweepError("Ray is not installed: pip install ray") from error
    try:
        text = pathlib.Path(sweep.scenario).read_text(encoding="utf-8")
    except OSError as error:
        raise SweepError(f"reading {sweep.scenario}: {error.strerror}") from error
    parts = pathlib.Path(f"{out}.parts", _key(sweep, text))
    started = not ray.is_initialized()
    if started:
        _join(ray, address)
    try:
        parts.mkdir(parents=True, exist_ok=True)
        _compute(ray, sweep, text, parts, progress)
    finally:
        if started:
            ray.shutdown()
    files = [str(_part(parts, index, sweep)) for index in range(sweep.shards)]
    merged = subprocess.run(
        [sweep.shunt, "sim", "merge", *files, "--out", str(out)], capture_output=True, check=False
    )
    if merged.returncode != 0:
        raise SweepError(merged.stderr.decode(errors="replace").strip())
    shutil.rmtree(parts.parent)


def _join(ray, address):
    """Joins the cluster, or starts one on this machine."""
    host, _, port = (address or "").rpartition(":")
    try:
        # Ray itself goes on trying for minutes where nobody listens.
        if host and port.isdigit() and "/" not in host:
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED_S).close()
    except OSError as error:
        raise SweepError(f"the cluster at {address} cannot be reached: {error.strerror or error}") from error
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as error:
        # Ray's own cause is the last of a chain, and its first line the one that says something.
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        where = f"the cluster at {address}" if address else "a cluster on this machine"
        raise SweepError(f"{where} cannot be reached: {str(cause).strip().splitlines()[-1]}") from error


def _key(sweep, text):
    """Names what the shards are of: an interrupted sweep of something else leaves nothing to this one."""
    try:
        version = subprocess.run([sweep.shunt, "--version"], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SweepError(f"the binary {sweep.shunt} does not run here: {error}") from error
    whole = "\0".join([version.decode(errors="replace"), text, *sweep.arguments()])
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _part(parts, index, sweep):
    return parts / f"{index}-of-{sweep.shards}.jsonl"


def _compute(ray, sweep, text, parts, progress):
    """Keeps every missing shard running until it is there or was tried too often."""
    # The nodes need the binary, not this package.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    remote = ray.remote(max_retries=sweep.retries)(compute_shard)
    flags = sweep.arguments()

    def start(index):
        return remote.remote(sweep.shunt, text, flags, index, sweep.shards)

    missing = [i for i in range(sweep.shards) if not _part(parts, i, sweep).exists()]
    running = {start(index): (index, 0) for index in missing}
    done = sweep.shards - len(missing)
    while running:
        ready, _ = ray.wait(list(running), num_returns=1)
        index, tries = running.pop(ready[0])
        try:
            lines = ray.get(ready[0])
        except ray.exceptions.RayError as error:
            if tries >= sweep.retries:
                for other in running:
                    ray.cancel(other, force=True)
                cause = getattr(error, "cause", None) or error
                raise SweepError(str(cause).strip().splitlines()[-1]) from error
            running[start(index)] = (index, tries + 1)
            continue
        # Written beside its place and moved there: a part is whole or not there.
        part = _part(parts, index, sweep)
        beside = part.with_suffix(f".{os.getpid()}")
        beside.write_bytes(lines)
        beside.replace(part)
        done += 1
        if progress:
            print(f"{done} of {sweep.shards} shards", file=progress, flush=True)
