"""Tests that are a process each, one after the other in one run of Shunt, each with a deadline of its own."""

import re

# $1 is the deadline, $2 what runs the test that is $1 there; the rest are tests. The new line is for output that ends without one.
# timeout(1) leads a process group: what a test has left there ends with it, or it would hold the ports of the next.
LOOP = """limit=$1 line=$2; shift 2
for test; do
    printf '=== begin %s\\n' "$test"
    timeout -k 2 "$limit" sh -c "$line" sh "$test" &
    wait "$!"
    status=$?
    kill -KILL "-$!" 2>/dev/null
    printf '\\n=== end %s %s\\n' "$status" "$test"
done"""
BLOCK = re.compile(r"^=== begin (\S+)\n(.*?)^=== end (\d+) \1$", re.M | re.S)
RUNNING = re.compile(r"^=== begin (\S+)$", re.M)
TIMED_OUT = (124, 137)


def each(world, line, tests, limit, deadline, cwd, env=None):
    """Runs `line` with each test's name as $1: status and output of those that ended, and whether all did."""
    command = ["sh", "-c", LOOP, "sh", str(limit), line, *tests]
    _, printed = world.run(command, deadline, cwd=cwd, env=env)
    done = {name: (int(status), text) for name, text, status in BLOCK.findall(printed)}
    begun = RUNNING.findall(printed)
    if begun and begun[-1] not in done:
        done[begun[-1]] = (TIMED_OUT[0], printed.rpartition("=== begin ")[2])
    return done, len(done) == len(tests)


def verdict(status, text, skipped):
    """What a process that is a test has said by its status and its output."""
    if status in TIMED_OUT:
        return "fail", f"it hangs\n{text[-3000:]}"
    if skipped:
        return "skip", text[-300:]
    return ("pass" if status == 0 else "fail"), f"status {status}\n{text[-3000:]}"


def left(tests, only, decided):
    """The tests of a part that are still to be run."""
    return [test for test in tests if (test in only if only is not None else test not in decided)]
