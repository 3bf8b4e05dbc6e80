"""PostgreSQL's regression tests, from the source package of the server on this machine, with that server, over TCP."""

import glob
import os
import re
import shutil
import subprocess

import sources

NAME = "postgresql"
# The first lines of the schedule stand on their own; the others need what those before them have made.
PARTS = ["types", "schedule"]
QUICK = ["types"]
LINES_OF_TYPES = 5
PART_DEADLINE_S = 550
WAYS = ("loopback", "engine", "supervised")
PLACE = {}
# A server of its own, the tests, the end of the server; as a user whom it does not refuse.
RUN = """set -e
cd "$1"
rm -rf data socket out
PATH=$BIN:$PATH
initdb -D data -A trust -U postgres --no-locale -E UTF8 --no-sync >/dev/null
echo 'host all all all trust' >>data/pg_hba.conf
mkdir socket out
postgres -D data -h "$HOST" -k "$1/socket" -F >server.log 2>&1 &
server=$!
waited=0
until pg_isready -q -h "$HOST" -U postgres; do
    waited=$((waited + 1))
    if [ "$waited" -gt 300 ]; then cat server.log; exit 3; fi
    sleep 0.2
done
status=0
"$REGRESS" --inputdir="$INPUT" --outputdir=out --bindir="$BIN" --host="$HOST" --user=postgres --schedule="$SCHEDULE" || status=$?
tail -c 100000 out/regression.diffs 2>/dev/null || :
kill -INT "$server"
wait "$server" || :
exit "$status"
"""


def binaries():
    return max(glob.glob("/usr/lib/postgresql/*/bin/postgres"), default=None, key=lambda path: int(path.split("/")[4]))


def missing():
    lacking = sources.lacking("setpriv", "apt-get", "dpkg-source")
    if lacking or not binaries():
        return lacking or "no postgres (Debian: postgresql)"
    return None if os.path.exists(regress()) else f"no {regress()}"


def regress():
    return os.path.join(os.path.dirname(os.path.dirname(binaries())), "lib/pgxs/src/test/regress/pg_regress")


def version():
    return subprocess.run([binaries(), "--version"], capture_output=True, text=True, check=True).stdout.split()[2]


def prepare(folder):
    package = f"postgresql-{binaries().split('/')[4]}"
    tests = os.path.join(sources.fetch(folder, package, like=package), "src/test/regress")
    home = os.path.join(folder, "home")
    os.makedirs(home)
    shutil.chown(home, "nobody")
    for path in (folder, home):
        os.chmod(path, 0o755)
    with open(os.path.join(tests, "parallel_schedule")) as file:
        lines = [line for line in file if line.startswith("test:")]
    with open(os.path.join(tests, "types_schedule"), "w") as file:
        file.writelines(lines[:LINES_OF_TYPES])
    PLACE.update(tests=tests, home=home)


def attempt(world, part, only, decided):
    """A schedule is one run, in which tests need others: to run some again is to run it again."""
    del decided
    schedule = {"types": "types_schedule", "schedule": "parallel_schedule"}[part]
    environment = {
        "HOST": world.address, "BIN": os.path.dirname(binaries()), "REGRESS": regress(), "INPUT": PLACE["tests"],
        "SCHEDULE": os.path.join(PLACE["tests"], schedule),
    }
    line = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "sh", "-c", RUN, "sh", PLACE["home"]]
    status, printed = world.run(line, PART_DEADLINE_S, cwd=PLACE["home"], env=environment)
    judged = {}
    for name, word in re.findall(r"^(?:test|    ) (\w\S*) +\.\.\. (ok|FAILED)", printed, re.M):
        judged[f"{part}: {name}"] = ("pass", "") if word == "ok" else ("fail", differences(printed, name))
    if status not in (0, 1):
        judged[part] = ("fail", f"status {status}\n{printed[-3000:]}")
    return {name: what for name, what in judged.items() if only is None or name in only}, True


def differences(printed, name):
    """What diff(1) has told of a test's output."""
    found = re.search(rf"^diff \S+ .*/{re.escape(name)}\.out\b.*?(?=^diff |\Z)", printed, re.M | re.S)
    return found[0][:3000] if found else ""
