"""memcached's own tests, with a memcached that is built from its source package, over TCP; needs perl and libevent's headers."""

import glob
import os
import re

import sources
from each import each, left, verdict

NAME = "memcached"
# They wait, or test memory and files, for ten seconds to a minute each.
LONG = {
    "binary-extstore", "binary", "chunked-extstore", "error-extstore", "extstore", "extstore-buckets", "extstore-jbod", "lru-maintainer",
    "maxconns", "restart",
}
PARTS = ["short", "rest"]
QUICK = ["short"]
SHORT = {
    "64bit", "ascii-auth", "binary-get", "binary-sasl", "bogus-commands", "conn-limits", "expirations", "flags", "incrdecr", "issue_104",
    "issue_108", "issue_22", "issue_3", "issue_41", "issue_42", "issue_50", "issue_67", "issue_68", "issue_70", "line-lengths", "lru",
    "malicious-commands", "multiversioning", "noreply", "quit", "stats-conns", "stats-detail", "stats", "strtol-testing", "udp",
    "watcher_connid",
}
TEST_DEADLINE_S = 300
PART_DEADLINE_S = 1200
WAYS = ("loopback", "supervised")
SOURCE = {}
# The tests take a Unix socket where -h names that option; what else they ask the server for is unchanged.
WRAPPER = """#!/bin/sh
case "$1" in -h) ./memcached-real -h | grep -v unix-socket ;; *) exec ./memcached-real "$@" ;; esac
"""


def missing():
    return sources.lacking("perl", "cc", "make", "apt-get", "dpkg-source", headers=[("event.h", "libevent-dev")])


def version():
    return sources.debian_version("memcached")


def prepare(folder):
    source = sources.fetch(folder, "memcached")
    sources.build(source, ["./configure", "--disable-docs", "--disable-dependency-tracking"],
                  ["make", f"-j{os.cpu_count()}", "memcached-debug", "timedrun", "sizes", "testapp"])
    server = os.path.join(source, "memcached-debug")
    os.rename(server, os.path.join(source, "memcached-real"))
    with open(server, "w") as file:
        file.write(WRAPPER)
    os.chmod(server, 0o755)
    SOURCE["folder"] = source


def attempt(world, part, only, decided):
    """A file of tests is a test here: its numbered assertions come in too many and with chance in their names."""
    files = sorted(os.path.basename(path)[:-2] for path in glob.glob(os.path.join(SOURCE["folder"], "t", "*.t")))
    wanted = [name for name in files if name not in LONG and (name in SHORT) == (part == "short")]
    line = 'exec perl t/"$1".t'
    done, ended = each(world, line, left(wanted, only, decided), TEST_DEADLINE_S, PART_DEADLINE_S, SOURCE["folder"])
    return {name: judge(status, text) for name, (status, text) in done.items()}, ended


def judge(status, text):
    complaints = [line for line in text.splitlines() if not re.match(r"ok \d", line)]
    return verdict(status, "\n".join(complaints), re.match(r"1\.\.0 # SKIP", text))
