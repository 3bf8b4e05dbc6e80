"""What the parts of scripts/cards have in common."""

import sys


class Skip(Exception):
    """Something that this machine lacks."""


class Failure(Exception):
    """Something that went wrong."""


def say(text):
    print(text, file=sys.stderr, flush=True)
