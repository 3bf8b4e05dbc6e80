"""Command line of the package: `shunt-sweep` or `python -m shunt_sweep`."""

import argparse
import sys

from .sweep import Sweep, SweepError, run


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="shunt-sweep",
        description="Runs `shunt sim sweep` in shards on a Ray cluster; the result has the bytes of one machine's.",
        epilog="examples:\n"
        "  shunt-sweep scenarios/fig8.toml --shards 8 --out all.jsonl                   this machine\n"
        "  shunt-sweep my.toml --axis clients=1..9 --address HOST:6379 --out all.jsonl  a cluster\n\n"
        "A sweep that was interrupted goes on where it stopped when it is given the same --out again.\n"
        "Exit status: 0 success, 2 a shard that failed to the end, wrong usage, or an interruption.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", help="the scenario file (TOML)")
    parser.add_argument("--out", required=True, help="write the merged results to this file")
    parser.add_argument("--axis", action="append", default=[], metavar="KEY=VALUES")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--shards", type=int, default=64, help="parts to divide the sweep into")
    parser.add_argument("--retries", type=int, default=3, help="tries of a shard after the first")
    parser.add_argument("--address", help="a Ray cluster; without it this machine")
    parser.add_argument("--shunt", default="shunt", help="the binary, on every node")
    arguments = parser.parse_args()
    sweep = Sweep(
        scenario=arguments.scenario,
        axes=arguments.axis,
        settings=arguments.set,
        shards=arguments.shards,
        retries=arguments.retries,
        shunt=arguments.shunt,
    )
    try:
        run(sweep, arguments.out, address=arguments.address, progress=sys.stderr)
    except SweepError as error:
        print(f"shunt-sweep: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            f"shunt-sweep: interrupted: finished shards are in {arguments.out}.parts; the same command goes on from there",
            file=sys.stderr,
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
