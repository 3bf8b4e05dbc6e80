#!/usr/bin/env python3
"""Runs the parity programs over the kernel and over Shunt and compares what they print.

    run.py --library libshunt.so --address 10.0.0.2 [--kernel-address 127.0.0.1] [PROGRAM...]
    run.py --kernel                    only the kernel's side, twice: shows which programs are stable

With --server-command and --client-command (for instance "ip netns exec a env LD_PRELOAD=… SHUNT_ENGINE=…")
the two halves run as two processes, on two hosts if need be, against --address and --port.
"""

import argparse
import difflib
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 30


def build(names, folder):
    for name in names:
        command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function",
                   "-Wno-stringop-overflow", "-Wno-stringop-overread", "-pthread", "-o", folder / name, HERE / f"{name}.c"]
        subprocess.run(command, check=True)


def run(command, environment):
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        return text + f"no end after {LIMIT_S} s\n"
    return done.stdout + (f"exit {done.returncode}\n{done.stderr}" if done.returncode or done.stderr else "")


def two_halves(program, arguments):
    target = [arguments.address, str(arguments.port)]
    server = subprocess.Popen(
        [*shlex.split(arguments.server_command), program, "server", *target],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(0.3)
    client = run([*shlex.split(arguments.client_command), program, "client", *target], dict(os.environ))
    try:
        served = server.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        server.kill()
        served = server.communicate()[0] + f"no end after {LIMIT_S} s\n"
    return client + "-- server\n" + served


def over_shunt(program, arguments):
    if arguments.server_command:
        return two_halves(program, arguments)
    if arguments.kernel:
        return run([program, "both", arguments.kernel_address], dict(os.environ))
    environment = dict(os.environ, LD_PRELOAD=str(pathlib.Path(arguments.library).resolve()))
    return run([program, "both", arguments.address], environment)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library")
    parser.add_argument("--address", default="10.0.0.2")
    parser.add_argument("--kernel-address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7000)
    parser.add_argument("--kernel", action="store_true")
    parser.add_argument("--server-command")
    parser.add_argument("--client-command")
    parser.add_argument("programs", nargs="*")
    arguments = parser.parse_args()
    if not (arguments.kernel or arguments.library or arguments.server_command):
        parser.error("name --library, --kernel or --server-command")
    names = arguments.programs or sorted(path.stem for path in HERE.glob("*.c"))
    different = 0
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        build(names, pathlib.Path(folder))
        for name in names:
            program = f"{folder}/{name}"
            expected = run([program, "both", arguments.kernel_address], dict(os.environ))
            found = over_shunt(program, arguments)
            same = expected == found
            different += not same
            print(f"{'same' if same else 'DIFFERENT'}  {name}", flush=True)
            if not same:
                lines = difflib.unified_diff(
                    expected.splitlines(), found.splitlines(), "kernel", "shunt", n=2, lineterm="")
                print("\n".join("    " + line for line in lines))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
