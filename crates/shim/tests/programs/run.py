#!/usr/bin/env python3
"""Runs the parity programs over the kernel and over Shunt and compares what they print.

    run.py --library libshunt.so --address 10.0.0.2 [--kernel-address 127.0.0.1] [PROGRAM...]
    run.py --kernel                    only the kernel's side, twice: shows which programs are stable

With --built FOLDER the compiled programs are kept there, and a later run compiles only those whose source has changed.
With --said FOLDER what the kernel has printed is kept there: several runs at the same time, or one after the other, ask it
once for each program. With --kernel nothing else is done then.

With --command (for instance "shunt run --engine-mode inline --address ADDRESS/24 --") each program is started by that command. Where
the word ADDRESS is in it, it is replaced, and each program has one of its own: the first --address, the next ones those
above it. With --static the programs are linked so that no library can be preloaded.

With --differences FOLDER a program NAME may differ in just the lines that FOLDER/NAME.diff lists: those of the kernel behind a
minus, those of Shunt behind a plus, as diff(1) does, with no line numbers. One that differs in another line, or does not in one
of these, is DIFFERENT. Lines that begin with # say why. With --write the files are made anew from what is found, and
keep their reasons.

With --server-command and --client-command (for instance "ip netns exec a env LD_PRELOAD=… SHUNT_ENGINE=…")
the two halves run as two processes, on two hosts if need be, against --address and --port.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import difflib
import fcntl
import ipaddress
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# For one run of a program; --limit sets another. One that works meanwhile and does not wait may take so many times that: on a busy
# machine a program of a hundred thousand calls does.
limit_s = 60
WORKING_FACTOR = 4
# Part of a processor's time from which on it works: who waits in vain looks now and then whether that still makes sense.
WORKING = 0.02
# Of what differs in one program, so that what differs in the next one is seen too.
LINES_SHOWN, WIDTH_SHOWN = 40, 200


def is_v6(name):
    return name.endswith(("-v6", "_v6"))


def needs_link(name):
    """Whether the program speaks over the link itself, which loopback is no substitute for."""
    return "PARITY_LINK" in source_of(name).read_text()


def source_of(name):
    return HERE / f"{name.removesuffix('-v6')}.c"


def variants(name):
    """The program itself, and its twin over IPv6 if it has one; one that ends with _v6 has nothing else."""
    if name.endswith("_v6"):
        return [name]
    source = source_of(name).read_text()
    return [name, f"{name}-v6"] if "PARITY_V6" in source or "sockaddr_in" not in source else [name]


def is_built(path, name):
    """Whether what was compiled is newer than what it is made of."""
    sources = [source_of(name), HERE / "run.py", *HERE.glob("*.h")]
    return path.exists() and path.stat().st_mtime > max(source.stat().st_mtime for source in sources)


def object_of(name, folder):
    """Where it is compiled to: once for both ways of linking, unless it asks which it is."""
    kind = folder.name if "STATICALLY_LINKED" in source_of(name).read_text() else "either"
    return folder.parent / f"{name}.{kind}.o"


def compile_to(path, name, linking):
    family = ["-DPARITY_V6"] if is_v6(name) else []
    defined = ["-DSTATICALLY_LINKED"] if linking else []
    command = ["cc", *defined, *family, "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function",
               "-Wno-stringop-overflow", "-Wno-stringop-overread", "-pthread", "-c", "-o", f"{path}.new", source_of(name)]
    subprocess.run(command, check=True)
    os.rename(f"{path}.new", path)


def build(names, folder, linking):
    def build_one(name):
        code, made = object_of(name, folder), folder / f"{name}.new"
        if not is_built(code, name):
            compile_to(code, name, linking)
        subprocess.run(["cc", *linking, "-pthread", "-o", made, code], check=True)
        # Another run may be executing the old one.
        made.rename(folder / name)
        # Whoever waits for this run sees that it goes on.
        print(f"compiled  {name}", flush=True)

    with open(folder.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(build_one, [name for name in names if not is_built(folder / name, name)]))


@contextlib.contextmanager
def built_in(kept, linking):
    """The folder of the compiled programs, which ends with the run unless it is to be kept."""
    with contextlib.nullcontext(kept) if kept else tempfile.TemporaryDirectory(prefix="parity-") as top:
        folder = pathlib.Path(top, "static" if linking else "shared")
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def processor_s(session):
    """What the processes of a session, and those of them that have ended, have had of the processors."""
    ticks = 0
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15])) if int(fields[3]) == session else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def run(command, environment):
    began, had_s = time.monotonic(), 0
    program = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    for _ in range(WORKING_FACTOR):
        with contextlib.suppress(subprocess.TimeoutExpired):
            said, complaints = program.communicate(timeout=limit_s)
            return said + (f"exit {program.returncode}\n{complaints}" if program.returncode or complaints else "")
        has_s = processor_s(program.pid)
        if has_s - had_s < WORKING * limit_s:
            break
        had_s = has_s
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    try:
        said = program.communicate(timeout=1)[0]
    except subprocess.TimeoutExpired as late:
        # Who has left its group keeps the pipe.
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
    return said + f"no end after {time.monotonic() - began:.0f} s\n"


def two_halves(program, arguments):
    target = [arguments.address, str(arguments.port)]
    server = subprocess.Popen(
        [*shlex.split(arguments.server_command), program, "server", *target],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(0.3)
    client = run([*shlex.split(arguments.client_command), program, "client", *target], dict(os.environ))
    try:
        served = server.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        server.kill()
        served = server.communicate()[0] + f"no end after {limit_s} s\n"
    return client + "-- server\n" + served


def addresses_of(name, arguments):
    """Where the program's halves meet on the kernel and on Shunt."""
    on_link = needs_link(name)
    if is_v6(name):
        return arguments.link_address_v6 if on_link else arguments.kernel_address_v6, arguments.address_v6
    return arguments.link_address if on_link else arguments.kernel_address, arguments.address


def over_shunt(program, index, arguments, addresses):
    if arguments.command:
        address = addresses[1]
        if "ADDRESS" in arguments.command:
            address = str(ipaddress.ip_address(address) + index)
        command = shlex.split(arguments.command.replace("ADDRESS", address))
        return run([*command, program, "both", address], dict(os.environ))
    if arguments.server_command:
        return two_halves(program, arguments)
    if arguments.kernel:
        return run([program, "both", addresses[0]], dict(os.environ))
    environment = dict(os.environ, LD_PRELOAD=str(pathlib.Path(arguments.library).resolve()))
    return run([program, "both", addresses[1]], environment)


def hunks(expected, found):
    """Where two outputs differ: changed lines alone, those that follow each other together."""
    lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), n=0, lineterm="")
    return ["@@" if line.startswith("@@") else line for line in lines][2:]


class KernelSide:
    """What the kernel prints. Runs that share a folder ask it once for each program."""

    def __init__(self, folder, linking):
        self.folder = pathlib.Path(folder, "static" if linking else "shared") if folder else None
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)

    def of(self, name, program, address, waits):
        """What the program prints; None where another run is asking right now, and this one does not want to wait."""
        if not self.folder:
            return run([program, "both", address], dict(os.environ))
        with open(self.folder / f"{name}.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError:
                return None
            said = self.folder / name
            if not said.exists():
                said.write_text(run([program, "both", address], dict(os.environ)))
            return said.read_text()


class Listed:
    """The differences that a folder lists."""

    def __init__(self, folder, writes):
        self.folder, self.writes = pathlib.Path(folder) if folder else None, writes

    def file(self, name):
        """The twin over IPv6 has the program's own, unless there is another."""
        if not self.folder:
            return None
        own = self.folder / f"{name}.diff"
        return own if own.exists() else self.folder / f"{name.removesuffix('-v6')}.diff"

    def of(self, name):
        """What a program may print otherwise, and why."""
        file = self.file(name)
        lines = file.read_text().splitlines() if file and file.exists() else []
        return [line for line in lines if not line.startswith("#")], [line for line in lines if line.startswith("#")]

    def write(self, name, differing):
        file = self.file(name)
        reasons = self.of(name)[1] or ["# ?"]
        if differing:
            file.write_text("\n".join(reasons + differing) + "\n")
        else:
            file.unlink(missing_ok=True)

    def judge(self, name, expected, found):
        """What is to be said of it, and whether that is well; the lines that are not as they should be."""
        differing, listed = hunks(expected, found), self.of(name)[0]
        if self.writes:
            self.write(name, differing)
            return f"same  {name}" + (", but for what was written" if differing else ""), True, []
        if differing == listed:
            return f"same  {name}" + (", but for what is listed" if listed else ""), True, []
        if not listed:
            lines = difflib.unified_diff(
                expected.splitlines(), found.splitlines(), "kernel", "shunt", n=2, lineterm="")
        else:
            lines = difflib.unified_diff(listed, differing, "listed", "found", n=2, lineterm="")
        return f"DIFFERENT  {name}", False, list(lines)


def main():
    global limit_s
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library")
    parser.add_argument("--address", default="10.0.0.2")
    parser.add_argument("--kernel-address", default="127.0.0.1")
    parser.add_argument("--address-v6", help="without it the programs' twins over IPv6 are left out")
    parser.add_argument("--kernel-address-v6", default="::1")
    parser.add_argument("--link", help="name of the engine's link; without it programs that need one are left out")
    parser.add_argument("--link-address", help="the kernel's own address there")
    parser.add_argument("--link-address-v6")
    parser.add_argument("--port", type=int, default=7000)
    parser.add_argument("--kernel", action="store_true")
    parser.add_argument("--said", metavar="FOLDER", help="keep what the kernel prints there, and ask it for nothing else")
    parser.add_argument("--command")
    parser.add_argument("--static", action="store_true")
    parser.add_argument("--built", metavar="FOLDER", help="keep the compiled programs there, for the next run")
    parser.add_argument("--limit", type=int, default=limit_s, help="seconds that one run of a program may take")
    parser.add_argument("--differences", help="the folder of what may differ, line by line")
    parser.add_argument("--write", action="store_true", help="lists there what differs")
    parser.add_argument("--server-command")
    parser.add_argument("--client-command")
    parser.add_argument("programs", nargs="*")
    arguments = parser.parse_args()
    limit_s = arguments.limit
    if not (arguments.kernel or arguments.library or arguments.command or arguments.server_command):
        parser.error("name --library, --kernel, --command or --server-command")
    names = arguments.programs or sorted(path.stem for path in HERE.glob("*.c"))
    with_v6 = arguments.kernel or arguments.address_v6
    names = [one for name in names for one in variants(name) if with_v6 or not is_v6(one)]
    names = [name for name in names if arguments.link or not needs_link(name)]
    os.environ["PARITY_LINK"] = arguments.link or "lo"
    linking = ["-static"] if arguments.static else []
    listed, kernel = Listed(arguments.differences, arguments.write), KernelSide(arguments.said, linking)
    different, waiting = 0, collections.deque(enumerate(names))
    with built_in(arguments.built, linking) as folder:
        build(names, folder, linking)
        deferred = 0
        while waiting:
            index, name = waiting.popleft()
            on_kernel, on_shunt = addresses_of(name, arguments)
            # When each of those left has been asked for in vain, this run waits like the others.
            expected = kernel.of(name, folder / name, on_kernel, deferred > len(waiting))
            if expected is None:
                waiting.append((index, name))
                deferred += 1
                continue
            deferred = 0
            if arguments.kernel and arguments.said:
                print(f"asked  {name}", flush=True)
                continue
            found = over_shunt(folder / name, index, arguments, (on_kernel, on_shunt))
            said, is_well, lines = listed.judge(name, expected, found)
            different += not is_well
            print(said, flush=True)
            left = len(lines) - LINES_SHOWN
            shown = [line if len(line) <= WIDTH_SHOWN else f"{line[:WIDTH_SHOWN]}…" for line in lines[:LINES_SHOWN]]
            print("".join(f"    {line}\n" for line in shown), end=f"    … and {left} lines\n" if left > 0 else "")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
