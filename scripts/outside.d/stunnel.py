"""stunnel's own tests, with a stunnel that is built from its source package: TLS between processes that Python starts."""

import os
import re

import sources

NAME = "stunnel"
PARTS = ["all"]
QUICK = ["all"]
PART_DEADLINE_S = 300
WAYS = ("loopback", "supervised")
SOURCE = {}


def missing():
    return sources.lacking("cc", "make", "openssl", "python3", "apt-get", "dpkg-source", headers=[("openssl/ssl.h", "libssl-dev")])


def version():
    return sources.debian_version("stunnel4")


def prepare(folder):
    source = sources.fetch(folder, "stunnel4")
    sources.build(source, ["./configure", "--disable-dependency-tracking", "--disable-libwrap"], ["make", "-s", "-C", "src", f"-j{os.cpu_count()}", "stunnel"],
                  ["make", "-C", "tests/certs", "check"])
    SOURCE["folder"] = os.path.join(source, "tests")


def attempt(world, part, only, decided):
    """The tests are one run, whichever are wanted."""
    del part, decided
    status, printed = world.run(["python3", "maketest.py", "--debug=10"], PART_DEADLINE_S, cwd=SOURCE["folder"])
    judged = {}
    for number, title, text, word in re.findall(r"^(\d+)\. (.*)\n((?:.*\n)*?)\.{3,} (succeeded|failed|skipped)$", printed, re.M):
        judged[f"{number}. {title}"] = ({"succeeded": "pass", "failed": "fail", "skipped": "skip"}[word], text[-3000:])
    if "Summary:" not in printed:
        judged["all"] = ("fail", f"status {status}\n{printed[-3000:]}")
    return {name: what for name, what in judged.items() if only is None or name in only}, True
