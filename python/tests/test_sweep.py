"""The package on a local Ray cluster: the same bytes as one machine, and shards that are lost."""

import importlib.util
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from shunt_sweep import Sweep, SweepError, run  # noqa: E402

SHUNT = os.environ.get("SHUNT") or shutil.which("shunt")
SCENARIO = str(ROOT / "scenarios" / "fig8.toml")
AXES = ["clients=1..4", "stack=kernel,nic"]

needs_ray = unittest.skipUnless(importlib.util.find_spec("ray"), "Ray is not installed")
needs_shunt = unittest.skipUnless(SHUNT, "no shunt binary: set SHUNT")


@needs_ray
@needs_shunt
class OnRay(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name, "all.jsonl")

    def local(self):
        out = pathlib.Path(self.folder.name, "local.jsonl")
        axes = [flag for axis in AXES for flag in ("--axis", axis)]
        command = [SHUNT, "sim", "sweep", SCENARIO, *axes, "--out", str(out)]
        subprocess.run(command, check=True, capture_output=True)
        return out.read_bytes()

    def sweep(self, **changes):
        return Sweep(**{"scenario": SCENARIO, "axes": AXES, "shards": 5, "shunt": SHUNT, **changes})

    def test_the_bytes_are_those_of_one_machine(self):
        run(self.sweep(), self.out)
        self.assertEqual(self.out.read_bytes(), self.local())

    def test_a_lost_shard_is_tried_again(self):
        # A binary whose first call fails, whichever shard that is.
        broken = pathlib.Path(self.folder.name, "shunt")
        flag = pathlib.Path(self.folder.name, "failed")
        broken.write_text(
            f'#!/bin/sh\n[ "$2" = sweep ] && mkdir "{flag}" 2>/dev/null && exit 1\nexec "{SHUNT}" "$@"\n'
        )
        broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
        run(self.sweep(shunt=str(broken)), self.out)
        self.assertTrue(flag.exists())
        self.assertEqual(self.out.read_bytes(), self.local())

    def test_an_interrupted_sweep_goes_on_and_leaves_nothing_to_another(self):
        with self.assertRaises(SweepError):
            run(self.sweep(shunt=self.broken_after(3), retries=0), self.out)
        parts = pathlib.Path(f"{self.out}.parts")
        kept = list(parts.rglob("*.jsonl"))
        self.assertTrue(kept, "finished shards are kept")
        # Another sweep with the same --out and as many shards.
        other = pathlib.Path(self.folder.name, "other.jsonl")
        run(self.sweep(settings=["runs.seed=7"]), other)
        run(self.sweep(settings=["runs.seed=7"]), self.out)
        self.assertEqual(self.out.read_bytes(), other.read_bytes())
        self.assertFalse(parts.exists())

    def broken_after(self, calls):
        """A binary that fails for good after so many sweeps."""
        binary = pathlib.Path(self.folder.name, "tired")
        count = pathlib.Path(self.folder.name, "calls")
        binary.write_text(
            '#!/bin/sh\n[ "$2" = sweep ] || exec "' + SHUNT + '" "$@"\n'
            f'echo >> "{count}"; [ $(wc -l < "{count}") -gt {calls} ] && exit 1\nexec "{SHUNT}" "$@"\n'
        )
        binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
        return str(binary)

    def test_what_always_fails_is_said(self):
        with self.assertRaisesRegex(SweepError, "moon"):
            run(self.sweep(axes=["moon=1,2"], retries=1), self.out)


class WithoutACluster(unittest.TestCase):
    @needs_ray
    @needs_shunt
    def test_a_cluster_that_is_not_there_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(SweepError, "127.0.0.1:9 cannot be reached"):
                run(Sweep(scenario=SCENARIO, shunt=SHUNT), pathlib.Path(folder, "o.jsonl"), address="127.0.0.1:9")

    def test_a_scenario_that_is_not_there_is_named(self):
        if not importlib.util.find_spec("ray"):
            self.skipTest("Ray is not installed")
        with self.assertRaisesRegex(SweepError, "missing.toml"):
            run(Sweep(scenario="missing.toml", shunt="shunt"), "/tmp/never.jsonl")

    def test_no_shards_are_refused(self):
        with self.assertRaisesRegex(SweepError, "at least one"):
            run(Sweep(scenario=SCENARIO, shards=0), "/tmp/never.jsonl")


if __name__ == "__main__":
    unittest.main()
