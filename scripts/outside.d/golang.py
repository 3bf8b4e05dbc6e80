"""Go's own tests of `net` and `net/http`, as the toolchain on this machine has them, static, so without libc."""

import os
import re
import shutil
import subprocess

NAME = "go"
PARTS = ["net", "net/http"]
QUICK = ["net/http"]
PART_DEADLINE_S = 400
WAYS = ("supervised",)
BINARIES = {}
VERDICT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(")


def missing():
    return None if shutil.which("go") else "no go"


def version():
    return subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()[2:]


def prepare(folder):
    root = subprocess.run(["go", "env", "GOROOT"], capture_output=True, text=True, check=True).stdout.strip()
    for part in PARTS:
        binary = os.path.join(folder, part.replace("/", "-") + ".test")
        environment = {**os.environ, "CGO_ENABLED": "0"}
        subprocess.run(["go", "test", "-c", "-o", binary, part], check=True, env=environment, cwd=root)
        tests = subprocess.run([binary, "-test.list", "."], capture_output=True, text=True, check=True).stdout
        BINARIES[part] = (binary, os.path.join(root, "src", part), re.findall(r"^(?:Test|Example)\w*$", tests, re.M))


def attempt(world, part, only, decided):
    """One process for the tests that are left: what was judged, and whether it came to its end."""
    binary, folder, tests = BINARIES[part]
    wanted = {name.split(".", 1)[1].split("/")[0] for name in (only or [])}
    done = {name.split(".", 1)[1] for name in decided}
    names = [name for name in tests if (name in wanted if only is not None else name not in done)]
    if not names:
        return {}, True
    line = [binary, "-test.v", "-test.short", f"-test.timeout={PART_DEADLINE_S - 20}s", "-test.run", f"^({'|'.join(names)})$"]
    status, printed = world.run(line, PART_DEADLINE_S, cwd=folder)
    judged = read(part, printed)
    if status in (0, 1):
        return judged, True
    # It panicked or was ended: the test that it was in, and those that wait for others in parallel, have not been judged.
    running = re.findall(r"^\s+(Test\w+)\S* \([\d.]+[a-z]+\)$", printed.partition("running tests:")[2], re.M)
    started = [name for name in re.findall(r"^=== RUN\s+(\w+)$", printed, re.M) if f"{part}.{name}" not in judged]
    waiting = set(re.findall(r"^=== PAUSE (\w+)$", printed, re.M)) - set(re.findall(r"^=== CONT\s+(\w+)", printed, re.M))
    for name in running or [name for name in started if name not in waiting][-1:]:
        judged[f"{part}.{name}"] = ("fail", f"status {status}\n{printed[-3000:]}")
    return judged, False


def read(part, printed):
    judged, text = {}, []
    for line in printed.splitlines():
        found = VERDICT.match(line)
        if found:
            verdict = {"PASS": "pass", "FAIL": "fail", "SKIP": "skip"}[found[1]]
            judged[f"{part}.{found[2]}"] = (verdict, "\n".join(text[-30:]))
            text = []
        else:
            text.append(line)
    return judged
