"""What three event loops of Python test of themselves: Tornado, gevent and Twisted, from the package index, in an environment of their own."""

import os
import subprocess

import cpython
import unittests

NAME = "frameworks"
VERSIONS = {"tornado": "6.6.1", "gevent": "26.9.0", "twisted": "26.10.0"}
# What tests of theirs import.
HELPERS = ["pyhamcrest==2.1.0", "hypothesis==6.170.17"]
MODULES = {
    "tornado": ["ioloop_test", "iostream_test", "netutil_test", "tcpclient_test", "tcpserver_test", "httpserver_test", "simple_httpclient_test", "websocket_test"],
    "gevent": ["test__socket", "test__socket_close", "test__socket_errors", "test__socket_ex", "test__socket_send_memoryview", "test__server",
               "test__server_pywsgi", "test__pywsgi", "test__select", "test__greenio", "test__ssl"],
    "twisted": ["internet.test.test_tcp", "internet.test.test_udp", "test.test_tcp", "test.test_udp", "test.test_tcp_internals"],
}
FOLDERS = {"tornado": "tornado.test.", "gevent": "gevent.tests.", "twisted": "twisted."}
PARTS = [FOLDERS[package] + module for package, modules in MODULES.items() for module in modules]
QUICK = ["tornado.test.ioloop_test", "gevent.tests.test__server", "twisted.internet.test.test_tcp"]
PART_DEADLINE_S = 240
WAYS = ("loopback", "supervised")
PLACE = {}


def missing():
    return None if cpython.interpreter() else "no python3"


def version():
    return " ".join(f"{package} {number}" for package, number in VERSIONS.items())


def prepare(folder):
    """An environment with these packages."""
    place = os.path.join(folder, "frameworks")
    PLACE["python"] = os.path.join(place, "bin", "python")
    wanted = [f"{package}=={number}" for package, number in VERSIONS.items()]
    subprocess.run([cpython.interpreter(), "-m", "venv", place], check=True)
    subprocess.run([PLACE["python"], "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted, *HELPERS], check=True)


def attempt(world, part, only, decided):
    return unittests.attempt(world, PLACE["python"], part, only, decided, PART_DEADLINE_S)
