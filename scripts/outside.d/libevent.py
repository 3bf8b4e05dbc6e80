"""libevent's own regression tests, from its source package; needs cmake, and OpenSSL's headers for those of TLS."""

import re
import subprocess

import sources
from each import each, left, verdict

NAME = "libevent"
PARTS = ["bufferevent", "listener", "http", "rpc", "ssl", "dns", "main", "util", "rest"]
# Those of HTTP wait for a minute.
QUICK = ["bufferevent", "listener", "rpc", "main"]
TEST_DEADLINE_S = 40
PART_DEADLINE_S = 400
WAYS = ("loopback", "supervised", "inline")
BUILT = {}


def missing():
    return sources.lacking("cc", "cmake", "make", "apt-get", "dpkg-source", headers=[("openssl/ssl.h", "libssl-dev")])


def version():
    return sources.debian_version("libevent-2.1-7")


def prepare(folder):
    source = sources.fetch(folder, "libevent")
    built = sources.cmake(source, "regress", "-DEVENT__LIBRARY_TYPE=STATIC", "-DEVENT__DISABLE_MBEDTLS=ON",
                          "-DEVENT__DISABLE_SAMPLES=ON", "-DEVENT__DISABLE_BENCHMARK=ON")
    told = subprocess.run([f"{built}/bin/regress", "--list-tests"], capture_output=True, text=True).stdout
    parts = {part: [] for part in PARTS}
    for name in re.findall(r"^\s*(\w+/[\w/]+)", told, re.M):
        group = name.partition("/")[0]
        parts[group if group in parts else "rest"].append(name)
    BUILT.update(program=f"{built}/bin/regress", parts=parts, source=source)


def attempt(world, part, only, decided):
    """Each test is a process of its own anyway, so it need not fork for one more."""
    tests = left(BUILT["parts"][part], only, decided)
    line = 'exec "$PROGRAM" --no-fork "$1"'
    done, ended = each(world, line, tests, TEST_DEADLINE_S, PART_DEADLINE_S, BUILT["source"], {"PROGRAM": BUILT["program"]})
    return {name: verdict(status, text, "SKIPPED" in text or "DISABLED" in text) for name, (status, text) in done.items()}, ended
