"""CPython's own tests of what programs do with sockets, module by module, by an interpreter that has its `test` package."""

import shutil
import subprocess

import unittests

NAME = "cpython"
QUICK = ["test_httplib", "test_ftplib", "test_smtplib", "test_poplib", "test_imaplib"]
PARTS = [
    "test_socket", "test_ssl", "test_select", "test_poll", "test_epoll", "test_selectors", "test_socketserver",
    "test_asyncio.test_events", "test_asyncio.test_sock_lowlevel", "test_asyncio.test_server", "test_asyncio.test_streams",
    "test_asyncio.test_sendfile", "test_asyncio.test_ssl", "test_asyncio.test_unix_events", "test_asyncore", "test_asynchat",
    "test_smtpd", "test_httplib", "test_httpservers", "test_ftplib", "test_smtplib", "test_poplib", "test_imaplib", "test_telnetlib",
    "test_urllib2_localnet", "test_xmlrpc", "test_docxmlrpc",
]
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
    return unittests.attempt(world, interpreter(), f"test.{part}", only, decided, PART_DEADLINE_S)
