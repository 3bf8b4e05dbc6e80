"""HAProxy's regression tests, from its source package, with the haproxy on this machine, run by Varnish's varnishtest."""

import glob
import os
import re
import shutil
import subprocess

import sources
from each import each, left, verdict

NAME = "haproxy"
PARTS = ["balance", "checks", "connection", "http", "ssl", "rest"]
QUICK = ["connection"]
FOLDERS = {
    "balance": ("balance", "cache", "compression", "server"),
    "checks": ("checks", "mailers", "tcp-rules"),
    "connection": ("connection", "stream", "seamless-reload", "log", "mcli", "startup"),
    "http": ("http-capture", "http-cookies", "http-errorfiles", "http-messaging", "http-rules", "http-set-timeout"),
    "ssl": ("ssl",),
}
TEST_DEADLINE_S = 30
PART_DEADLINE_S = 300
WAYS = ("loopback", "supervised")
PLACE = {}


def missing():
    return sources.lacking("haproxy", "varnishtest", "apt-get", "dpkg-source")


def version():
    text = subprocess.run(["haproxy", "-v"], capture_output=True, text=True, check=True).stdout
    return re.search(r"version (\d[\d.]*\d)", text)[1]


def prepare(folder):
    PLACE["folder"] = sources.fetch(folder, "haproxy", like="haproxy")


def attempt(world, part, only, decided):
    paths = sorted(glob.glob("reg-tests/*/*.vtc", root_dir=PLACE["folder"]))
    chosen = [path for path in paths if part == next((name for name, folders in FOLDERS.items() if path.split("/")[1] in folders), "rest")]
    environment = {"HAPROXY_PROGRAM": shutil.which("haproxy"), "TMPDIR": world.folder.name}
    tests = [path[len("reg-tests/"):-len(".vtc")] for path in chosen]
    line = 'exec varnishtest -t 20 "reg-tests/$1.vtc"'
    done, ended = each(world, line, left(tests, only, decided), TEST_DEADLINE_S, PART_DEADLINE_S, PLACE["folder"], environment)
    return {name: judge(status, text) for name, (status, text) in done.items()}, ended


def judge(status, text):
    # 77 is what it says of a test whose needs are not there.
    return verdict(status, text, status == 77)
