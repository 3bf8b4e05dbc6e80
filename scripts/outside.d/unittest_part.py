"""Runs one module of tests for unittest inside the interpreter under test, and writes a line for each test as it starts and ends.

    unittest_part.py EVENTS DEADLINE_S MODULE [--only NAMES | --without NAMES]

NAMES is a file with a test's id on each line. A test that takes longer than the deadline ends the process: it has started then,
and not ended. Tests of CPython's own that want the Internet, much memory or much time are skipped, as `python -m test` skips them.
"""

import faulthandler
import json
import logging
import sys
import unittest


class Result(unittest.TestResult):
    def __init__(self, events, deadline):
        super().__init__()
        self.events, self.deadline = events, deadline
        self.verdict = ("pass", "")

    def tell(self, test, status, text=""):
        print(json.dumps([test, status, text[-3000:]]), file=self.events, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.verdict = ("pass", "")
        self.tell(test.id(), "start")
        faulthandler.dump_traceback_later(self.deadline, exit=True)

    def stopTest(self, test):
        super().stopTest(test)
        faulthandler.cancel_dump_traceback_later()
        self.tell(test.id(), *self.verdict)

    def judge(self, test, status, text):
        # A class or module that cannot be set up has no test that starts.
        if isinstance(test, unittest.TestCase):
            self.verdict = (status, text)
        else:
            self.tell(test.id(), status, text)

    def addFailure(self, test, err):
        self.judge(test, "fail", self._exc_info_to_string(err, test))

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.judge(test, "fail", f"{subtest.id()}\n{self._exc_info_to_string(err, test)}")

    def addSkip(self, test, reason):
        self.judge(test, "skip", reason)

    def addUnexpectedSuccess(self, test):
        self.judge(test, "fail", "it was expected to fail")


def tests_of(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        else:
            yield item


def main():
    path, deadline, module = sys.argv[1:4]
    if module.startswith("test."):
        from test import support

        support.use_resources = []
    # Tornado's tests count lines of the log, and its own runner silences these.
    logging.getLogger("tornado.access").setLevel(logging.CRITICAL)
    chosen = tests_of(unittest.defaultTestLoader.loadTestsFromName(module))
    if len(sys.argv) > 4:
        names = set(open(sys.argv[5]).read().splitlines())
        wanted = sys.argv[4] == "--only"
        chosen = [test for test in chosen if (test.id() in names) == wanted]
    with open(path, "w") as events:
        result = Result(events, float(deadline))
        unittest.TestSuite(chosen).run(result)
        result.tell("", "end")


if __name__ == "__main__":
    main()
