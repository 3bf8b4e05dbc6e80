"""redis's own tests, from the source package of the redis-server on this machine, run with that server; needs tclsh."""

import os
import re
import shutil
import subprocess

import sources

NAME = "redis"
PARTS = [
    "unit/protocol", "unit/type/list", "unit/pubsub", "unit/auth", "unit/info", "unit/introspection", "unit/limits", "unit/querybuf",
    "unit/multi", "unit/networking", "integration/replication-2", "integration/block-repl", "integration/redis-cli",
    "integration/redis-benchmark", "integration/psync2-reg",
]
QUICK = ["unit/auth", "unit/pubsub", "unit/querybuf", "unit/multi"]
PART_DEADLINE_S = 240
WAYS = ("loopback", "supervised")
SOURCE = {}
VERDICT = re.compile(r"^\[(ok|err|skip|ignore|exception)\]: (.*?)(?: \(\d+ ms\))?$")


def missing():
    return sources.lacking("redis-server", "redis-cli", "redis-benchmark", "tclsh", "apt-get", "dpkg-source")


def version():
    text = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"v=(\S+)", text)[1]


def prepare(folder):
    source = sources.fetch(folder, "redis", like="redis-server")
    for name in ("redis-server", "redis-cli", "redis-benchmark", "redis-sentinel", "redis-check-aof", "redis-check-rdb"):
        if shutil.which(name):
            os.symlink(shutil.which(name), os.path.join(source, "src", name))
    SOURCE["folder"] = source


def attempt(world, part, only, decided):
    """A file of tests is one run; a test that fails is told by its text. A file that hangs or breaks off is told by its name."""
    del decided
    line = ["tclsh", "tests/test_helper.tcl", "--single", part, "--clients", "1", "--tags", "-slow", "--timeout", str(PART_DEADLINE_S - 40)]
    status, printed = world.run(line, PART_DEADLINE_S, cwd=SOURCE["folder"])
    judged = {}
    for line in re.sub(r"\x1b\[[0-9;]*m", "", printed).splitlines():
        found = VERDICT.match(line)
        if found:
            verdict = {"ok": "pass", "err": "fail", "exception": "fail"}.get(found[1], "skip")
            name = found[2].partition(" in tests/")[0] if verdict == "fail" else found[2]
            judged[f"{part}: {name}"] = (verdict, found[2])
    if status not in (0, 1) or "The End" not in printed:
        judged[part] = ("fail", f"status {status}\n{printed[-3000:]}")
    return {name: what for name, what in judged.items() if only is None or name in only}, True
