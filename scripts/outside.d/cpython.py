"""CPython's own tests of what programs do with sockets, module by module, by an interpreter that has its `test` package."""

import json
import os
import shutil
import subprocess

NAME = "cpython"
QUICK = ["test_httplib", "test_ftplib", "test_smtplib", "test_poplib", "test_imaplib"]
PARTS = [
    "test_socket", "test_ssl", "test_select", "test_poll", "test_epoll", "test_selectors", "test_socketserver",
    "test_asyncio.test_events", "test_asyncio.test_sock_lowlevel", "test_asyncio.test_server", "test_asyncio.test_streams",
    "test_asyncio.test_sendfile", "test_asyncio.test_ssl", "test_asyncio.test_unix_events", "test_asyncore", "test_asynchat",
    "test_smtpd", "test_httplib", "test_httpservers", "test_ftplib", "test_smtplib", "test_poplib", "test_imaplib", "test_telnetlib",
    "test_urllib2_localnet", "test_xmlrpc", "test_docxmlrpc",
]
TEST_DEADLINE_S = 20
PART_DEADLINE_S = 240
WAYS = ("loopback", "supervised")


def interpreter():
    """The first python3 that has its tests, by its own path, not a wrapper's."""
    for name in ("python3", "/usr/bin/python3", "/usr/local/bin/python3"):
        path = shutil.which(name)
        code = "import sys, test.test_socket; print(sys.executable)"
        if path:
            done = subprocess.run([path, "-c", code], capture_output=True, text=True)
            if done.returncode == 0:
                return done.stdout.strip()
    return None


def missing():
    return None if interpreter() else "no python3 here has its `test` package (Debian: libpython3-testsuite)"


def version():
    return subprocess.run([interpreter(), "-V"], capture_output=True, text=True, check=True).stdout.split()[1]


def prepare(_folder):
    pass


def attempt(world, part, only, decided):
    """One process for a module: what was judged, and whether it came to its end."""
    events = os.path.join(world.folder.name, "events")
    names = os.path.join(world.folder.name, "names")
    with open(names, "w") as file:
        file.write("\n".join(only if only is not None else decided))
    selection = ["--only" if only is not None else "--without", names] if only is not None or decided else []
    if os.path.exists(events):
        os.remove(events)
    runner = os.path.join(os.path.dirname(__file__), "cpython_part.py")
    line = [interpreter(), runner, events, str(TEST_DEADLINE_S), f"test.{part}", *selection]
    status, printed = world.run(line, PART_DEADLINE_S, cwd=world.folder.name, told=lambda: f"{len(read(events)[0])} tests")
    judged, running, ended = read(events)
    if running:
        what = "it hangs" if status is None or "Timeout (" in printed else f"the process ended ({status})"
        judged[running] = ("fail", f"{what}\n{printed[-3000:]}")
    elif not ended:
        judged[f"test.{part}"] = ("skip" if "SkipTest" in printed else "fail", printed[-3000:])
        ended = True
    return judged, ended


def read(path):
    """The tests that were judged, the one that has started and not ended, and whether all have."""
    judged, running, ended = {}, None, False
    if os.path.exists(path):
        for line in open(path):
            if not line.endswith("\n"):
                break
            test, status, text = json.loads(line)
            if status == "start":
                running = test
            elif status == "end":
                ended = True
            else:
                judged[test], running = (status, text), None
    return judged, running, ended
