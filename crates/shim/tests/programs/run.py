#!/usr/bin/env python3
"""Runs the parity programs over the kernel and over Shunt and compares what they print.

    run.py --library libshunt.so --address 10.0.0.2 [--kernel-address 127.0.0.1] [PROGRAM...]
    run.py --kernel                    only the kernel's side, twice: shows which programs are stable
    run.py --kernel --save FILE        the kernel's side once, for a later --expected FILE: Shunt's side alone

With --command (for instance "shunt run --inline --address ADDRESS/24 --") each program is started by that command. Where
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
import difflib
import ipaddress
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# For one run of a program; --limit sets another.
limit_s = 60


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


def build(names, folder, linking):
    for name in names:
        family = ["-DPARITY_V6"] if is_v6(name) else []
        command = ["cc", *linking, *family, "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function",
                   "-Wno-stringop-overflow", "-Wno-stringop-overread", "-pthread", "-o", folder / name, source_of(name)]
        subprocess.run(command, check=True)


def run(command, environment):
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        return text + f"no end after {limit_s} s\n"
    return done.stdout + (f"exit {done.returncode}\n{done.stderr}" if done.returncode or done.stderr else "")


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
    parser.add_argument("--save")
    parser.add_argument("--expected")
    parser.add_argument("--command")
    parser.add_argument("--static", action="store_true")
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
    known = json.loads(pathlib.Path(arguments.expected).read_text()) if arguments.expected else {}
    different, listed = 0, Listed(arguments.differences, arguments.write)
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        build(names, pathlib.Path(folder), ["-static"] if arguments.static else [])
        for index, name in enumerate(names):
            program = f"{folder}/{name}"
            on_link = needs_link(name)
            addresses = (arguments.link_address if on_link else arguments.kernel_address, arguments.address)
            if is_v6(name):
                own = arguments.link_address_v6 if on_link else arguments.kernel_address_v6
                addresses = (own, arguments.address_v6)
            expected = known.get(name) or run([program, "both", addresses[0]], dict(os.environ))
            if arguments.save:
                known[name] = expected
                continue
            found = over_shunt(program, index, arguments, addresses)
            said, is_well, lines = listed.judge(name, expected, found)
            different += not is_well
            print(said, flush=True)
            print("".join(f"    {line}\n" for line in lines), end="")
    if arguments.save:
        pathlib.Path(arguments.save).write_text(json.dumps(known))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
