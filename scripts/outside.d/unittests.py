"""Tests for unittest, a process for each module, judged test by test."""

import json
import os

TEST_DEADLINE_S = 20


def attempt(world, interpreter, module, only, decided, deadline_s):
    """One process for a module: what was judged, and whether it came to its end."""
    events = os.path.join(world.folder.name, "events")
    names = os.path.join(world.folder.name, "names")
    with open(names, "w") as file:
        file.write("\n".join(only if only is not None else decided))
    selection = ["--only" if only is not None else "--without", names] if only is not None or decided else []
    if os.path.exists(events):
        os.remove(events)
    runner = os.path.join(os.path.dirname(__file__), "unittest_part.py")
    line = [interpreter, runner, events, str(TEST_DEADLINE_S), module, *selection]
    status, printed = world.run(line, deadline_s, cwd=world.folder.name, told=lambda: f"{len(read(events)[0])} tests")
    judged, running, ended = read(events)
    if running:
        what = "it hangs" if status is None or "Timeout (" in printed else f"the process ended ({status})"
        judged[running] = ("fail", f"{what}\n{printed[-3000:]}")
    elif not ended:
        judged[module] = ("skip" if "SkipTest" in printed else "fail", printed[-3000:])
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
