"""Runs the program `prove` for the soaks that use it."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def executable():
    """The path of `prove`: HORO_PROVE, or that of the release build."""
    given = os.environ.get("HORO_PROVE")
    place = pathlib.Path(given) if given else ROOT / "build/release/tests/proof/prove"
    if not place.exists():
        sys.exit(f"soak: no {place}: build it with tools/test release, or set HORO_PROVE")
    return str(place)


def run(arguments, deadline_s):
    """The exit code and the lines of the output; a missed deadline adds a line."""
    command = [executable(), *map(str, arguments)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=deadline_s)
    except subprocess.TimeoutExpired as late:
        return 124, [*(late.stdout or b"").decode().splitlines(), f"did not end within {deadline_s} s"]
    return done.returncode, done.stdout.splitlines()
