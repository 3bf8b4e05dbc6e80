"""The packet scripts of the Linux kernel's own tests (tools/testing/selftests/net/packetdrill), from Debian's newest linux-source package.

They are packetdrill's, a program that is not needed: `pkt_play.py` plays one, in a network namespace of its own, whose TAP device is the cable
to the scripted peer. They are about a network card and not about loopback, so each run on Shunt has an engine of its own there.
"""

import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys

NAME = "packetdrill"
PARTS = ["tcp"]
# The package is large.
QUICK = []
WAYS = ("loopback",)
AT_ONCE = 4
DEADLINE_S = 150
HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = {}


def missing():
    lacking = [name for name in ("ip", "tc", "nstat", "sysctl", "ethtool", "apt-get", "dpkg-deb", "xz") if not shutil.which(name)]
    if not os.path.exists("/dev/net/tun"):
        lacking.append("/dev/net/tun")
    if os.geteuid() != 0:
        lacking.append("root")
    return f"no {', '.join(lacking)}" if lacking else None


def version():
    return SOURCE["version"]


def prepare(folder):
    known = subprocess.run(["apt-cache", "search", "^linux-source-"], capture_output=True, text=True, check=True).stdout
    numbers = re.findall(r"(?m)^linux-source-(\d+(?:\.\d+)*) ", known)
    SOURCE["version"] = max(numbers, key=lambda number: [int(one) for one in number.split(".")])
    subprocess.run(["apt-get", "download", f"linux-source-{SOURCE['version']}"], cwd=folder, check=True, capture_output=True, timeout=600)
    package = glob.glob(os.path.join(folder, "linux-source-*.deb"))[0]
    subprocess.run(["dpkg-deb", "-x", package, folder], check=True, timeout=300)
    source = glob.glob(os.path.join(folder, "usr/src/linux-source-*.tar.xz"))[0]
    subprocess.run(["tar", "-xf", source, "-C", folder, "--wildcards", "*/tools/testing/selftests/net/packetdrill/*"], check=True, timeout=300)
    SOURCE["folder"] = glob.glob(os.path.join(folder, "linux-source-*/tools/testing/selftests/net/packetdrill"))[0]


def attempt(world, part, only, decided):
    """Each script is a test; their names begin with the part."""
    names = [os.path.basename(path) for path in glob.glob(os.path.join(SOURCE["folder"], f"{part}_*.pkt"))]
    chosen = sorted(name for name in names if name not in decided and (only is None or name in only))
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(chosen, pool.map(lambda name: play(world, name), chosen))), True


def play(world, name):
    side = "kernel" if world.way == "kernel" else "shunt"
    line = [sys.executable, os.path.join(HERE, "pkt_play.py"), os.path.join(SOURCE["folder"], name), side, "--shunt", world.shunt]
    for slack in ("0.015", "0.03"):
        # A machine that is busy makes things late.
        try:
            done = subprocess.run([*line, "--tolerance", slack], capture_output=True, text=True, timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            return "fail", "it hangs"
        if done.returncode == 0:
            return "pass", ""
    return "fail", done.stdout + done.stderr
