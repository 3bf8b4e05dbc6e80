"""Runs a sweep of the shunt simulator in shards on a Ray cluster."""

from .sweep import Sweep, SweepError, run

__all__ = ["Sweep", "SweepError", "run"]
