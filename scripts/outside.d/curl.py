"""The first two hundred of curl's own tests, with a curl and servers that are built from its source package."""

import os
import re

import sources

NAME = "curl"
STEP = 50
PARTS = [f"{first}-{first + STEP - 1}" for first in range(1, 201, STEP)]
# To build it takes too long.
QUICK = []
PART_DEADLINE_S = 550
WAYS = ("loopback", "supervised")
SOURCE = {}
# What the tests of these numbers can do without: fewer libraries, less to build.
OPTIONS = ["--disable-dependency-tracking", "--disable-shared", "--disable-manual", "--disable-ldap", "--with-openssl", "--without-libpsl"]


def missing():
    return sources.lacking("cc", "make", "perl", "apt-get", "dpkg-source", headers=[("openssl/ssl.h", "libssl-dev")])


def version():
    return sources.debian_version("curl")


def prepare(folder):
    source = sources.fetch(folder, "curl")
    sources.build(source, ["./configure", *OPTIONS], ["make", "-s", f"-j{os.cpu_count()}"],
                  ["make", "-s", f"-j{os.cpu_count()}", "-C", "tests/server"])
    SOURCE["folder"] = os.path.join(source, "tests")


def attempt(world, part, only, decided):
    first, _, last = part.partition("-")
    numbers = [str(number) for number in range(int(first), int(last) + 1)]
    wanted = [number for number in numbers if (number in only if only is not None else number not in decided)]
    if not wanted:
        return {}, True
    # -a all of them, whatever fails; -p what a failed one logged; -n without valgrind, which Shunt does not run under.
    line = ["perl", "runtests.pl", "-a", "-am", "-p", "-n", *wanted]
    status, printed = world.run(line, PART_DEADLINE_S, cwd=SOURCE["folder"])
    judged = read(printed)
    return judged, status in (0, 1)


def read(printed):
    """`-am` prints one line for each test, and of one that fails more before it."""
    judged, text = {}, []
    for line in printed.splitlines():
        found = re.match(r"(PASS|FAIL|SKIP): (\d+) - (.*)", line)
        if found:
            word = {"PASS": "pass", "FAIL": "fail", "SKIP": "skip"}[found[1]]
            judged[found[2]] = (word, "\n".join([*text[-60:], found[3]]))
            text = []
        else:
            text.append(line)
    return judged
