"""PHP's own tests of sockets and streams, from the source package of the php on this machine, with that php.

PHP loads its modules with RTLD_DEEPBIND, so that their calls find libc's symbols and none of a preloaded library.
"""

import os
import re

import sources

NAME = "php"
# As Debian calls its version.
PROGRAM = "php8.2"
PARTS = ["ext/sockets/tests", "ext/standard/tests/network", "ext/standard/tests/http", "ext/standard/tests/streams"]
# To fetch its sources and run them takes too long; the parity program libc_handle makes the same calls.
QUICK = []
TEST_DEADLINE_S = 30
PART_DEADLINE_S = 300
WAYS = ("loopback", "supervised")
VERDICTS = {"PASS": "pass", "FAIL": "fail", "WARN": "fail", "LEAK": "fail", "BORK": "fail", "SKIP": "skip", "XFAIL": "skip"}
SOURCE = {}


def missing():
    return sources.lacking(PROGRAM, "apt-get", "dpkg-source")


def version():
    return sources.installed(f"{PROGRAM}-cli")


def prepare(folder):
    SOURCE["folder"] = sources.fetch(folder, PROGRAM, like=f"{PROGRAM}-cli")


def attempt(world, part, only, decided):
    place = os.path.join(SOURCE["folder"], part)
    tests = sorted(f"{part}/{name}" for name in os.listdir(place) if name.endswith(".phpt"))
    wanted = [test for test in tests if (test in only if only is not None else test not in decided)]
    if not wanted:
        return {}, True
    line = [PROGRAM, "run-tests.php", "-q", "-p", f"/usr/bin/{PROGRAM}", "--no-color", "--set-timeout", str(TEST_DEADLINE_S), *wanted]
    status, printed = world.run(line, PART_DEADLINE_S, cwd=SOURCE["folder"], env={"NO_INTERACTION": "1", "REPORT_EXIT_STATUS": "0"})
    return read(printed), status == 0


def read(printed):
    """A line for each test; what differed is in a file beside it."""
    judged = {}
    for word, test in re.findall(r"(?m)^(PASS|FAIL|WARN|LEAK|BORK|SKIP|XFAIL)\S* .*\[(\S+\.phpt)\]", printed):
        judged[test] = (VERDICTS[word], difference(test) if VERDICTS[word] == "fail" else "")
    return judged


def difference(test):
    path = os.path.join(SOURCE["folder"], test.removesuffix("t").removesuffix(".php") + ".diff")
    return open(path, errors="replace").read()[-3000:] if os.path.exists(path) else "it says nothing"
