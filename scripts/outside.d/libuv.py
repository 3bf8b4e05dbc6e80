"""libuv's own tests, from its source package; needs cmake."""

import re
import subprocess

import sources
from each import each, left, verdict

NAME = "libuv"
PARTS = ["tcp", "udp", "poll", "rest"]
QUICK = ["tcp", "poll"]
PATTERNS = {
    "tcp": r"tcp|shutdown|delayed_accept|connect|callback_stack|not_(readable|writable)|multiple_listen|getsockname_tcp|readable_on_eof|ipc_",
    "udp": r"udp|getsockname_udp",
    "poll": r"poll|socket_buffer|fork_socketpair|eintr|closed_fd|close_fd|embed|emfile|getaddrinfo|getnameinfo",
}
TEST_DEADLINE_S = 40
PART_DEADLINE_S = 300
WAYS = ("loopback", "supervised")
BUILT = {}


def missing():
    return sources.lacking("cc", "cmake", "make", "apt-get", "dpkg-source")


def version():
    return sources.debian_version("libuv1")


def prepare(folder):
    source = sources.fetch(folder, "libuv1")
    built = sources.cmake(source, "uv_run_tests", "-DBUILD_TESTING=ON")
    environment = {"UV_RUN_AS_ROOT": "1"}
    told = subprocess.run([f"{built}/uv_run_tests", "--list"], env=environment, capture_output=True, text=True, check=True).stdout
    # Helpers that a test wants are named behind it.
    names = re.findall(r"^(\w+)(?: \(helpers:.*)?$", told, re.M)
    parts = {part: [] for part in PARTS}
    for name in names:
        parts[next((part for part, pattern in PATTERNS.items() if re.match(pattern, name)), "rest")].append(name)
    BUILT.update(source=source, program=f"{built}/uv_run_tests", parts=parts)


def attempt(world, part, only, decided):
    tests = left(BUILT["parts"][part], only, decided)
    environment = {"UV_RUN_AS_ROOT": "1", "PROGRAM": BUILT["program"]}
    done, ended = each(world, 'exec "$PROGRAM" "$1"', tests, TEST_DEADLINE_S, PART_DEADLINE_S, BUILT["source"], environment)
    return {name: verdict(status, text, "# SKIP" in text) for name, (status, text) in done.items()}, ended
