"""Helpers of the tests of horo run: they start it and inspect the processes that it starts."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE_S = 360  # far longer than a loaded machine needs


def executable():
    given = os.environ.get("HORO_EXE")
    places = [given] if given else [ROOT / ".venv/bin/horo", ROOT / "build/release/tools/horo/horo"]
    found = next((str(place) for place in places if shutil.which(str(place))), None)
    assert found, f"no horo executable at any of {[str(place) for place in places]}: build it, or set HORO_EXE"
    return found


HORO = executable()


def command(ranks, program, options=()):
    program = "import os, signal, subprocess, sys, time\nrank = int(os.environ['HORO_RANK'])\n" + program
    return [HORO, "run", "-n", str(ranks), *options, sys.executable, "-c", program]


def clean_environment(extra=()):
    ours = ("OMP_NUM_THREADS", "PYTHONUNBUFFERED")
    return {name: value for name, value in os.environ.items() if name not in ours} | dict(extra)


def run(ranks, program, env=(), options=()):
    """Runs a Python program as a job to its end."""
    return horo(*command(ranks, program, options)[1:], env=env)


def horo(*arguments, env=()):
    return subprocess.run(
        [HORO, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=clean_environment(env),
    )


def start_and_read(program, lines, ranks=2, options=(), env=()):
    """Starts a job and reads its first lines; returns both."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    job = subprocess.Popen(command(ranks, program, options), env=clean_environment(env), **pipes)
    return job, "".join(job.stdout.readline() for _ in range(lines))


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def pids_in(text):
    return [int(pid) for pid in re.findall(r"pid=(\d+)", text)]


def all_end_soon(pids):
    """Whether all of them end within 60 s; a killed orphan ends with a delay."""
    end = time.monotonic() + 60
    while time.monotonic() < end and any(map(is_running, pids)):
        os.sched_yield()
    return not any(map(is_running, pids))
