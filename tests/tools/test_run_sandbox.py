"""horo run where a sandbox refuses system calls: the job runs without what they are for, or names the remedy."""

import pathlib
import platform
import subprocess
import sys

import pytest
import refusing
from launching import DEADLINE_S, HORO, clean_environment

SUM = "import horo.numpy as h, numpy; h.init(); print(h.rank(), h.allreduce(numpy.ones(100_000), op=h.Sum)[7])"
CALLS = sorted(refusing.NUMBERS["x86_64"])

pytestmark = pytest.mark.skipif(platform.machine() not in refusing.NUMBERS, reason="other numbers of system calls")


def run_without(calls, *words):
    script = pathlib.Path(refusing.__file__)
    done = subprocess.run(
        [sys.executable, script, ",".join(calls), HORO, "run", "-n", "2", *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=clean_environment(),
    )
    if done.stderr.startswith("seccomp: "):
        pytest.skip(done.stderr)
    return done


@pytest.mark.parametrize("options", [[], ["--min-np", "1"]], ids=["static", "elastic"])
@pytest.mark.parametrize("calls", [["memfd_create"], ["sched_setaffinity"], CALLS], ids=["memory", "cores", "all"])
def test_a_job_runs_where_a_sandbox_refuses(calls, options):
    done = run_without(calls, *options, sys.executable, "-c", SUM)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] 0 2.0", "[1] 1 2.0"]


def test_cores_that_were_asked_for_are_refused_with_the_remedy():
    done = run_without(["sched_setaffinity"], "--bind-to", "core", "true")
    assert done.returncode == 126 and "expected --bind-to none" in done.stderr


def test_a_job_without_shared_memory_names_the_call_that_is_refused():
    done = run_without(["memfd_create"], "-x", "HORO_TRANSPORT=shm", sys.executable, "-c", SUM)
    assert done.returncode == 1 and "memfd_create" in done.stderr and "HORO_TRANSPORT=auto or tcp" in done.stderr
