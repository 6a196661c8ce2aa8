"""horo why: which rank of a running job waits for which, and where both are."""

import json
import os
import signal
import time

import pytest
from launching import horo
from test_status import READY, WAIT, Job, folder  # noqa: F401 (a fixture)

INIT = "import numpy, horo.numpy as horo\nhoro.init()\n"
TRAIN = "for step in range(5):\n    horo.allreduce(numpy.ones(4), name='gradient')\n"
HANG = """
def evaluate():
    print(f'pid={os.getpid()}', flush=True)
    time.sleep(600)
def train():
    print(f'pid={os.getpid()}', flush=True)
    horo.allreduce(numpy.ones(4), name='late')
evaluate() if rank == 1 else train()
"""


@pytest.fixture
def start(folder):  # noqa: F811
    jobs = []

    def start_one(*arguments, **named):
        jobs.append(Job(folder, *arguments, **named))
        return jobs[-1]

    yield start_one
    for job in jobs:
        job.process.kill()
        job.process.communicate(timeout=60)


def why(job, *options):
    return horo("why", job.process.pid, *options, env=job.env)


def text_with(job, *parts):
    """The answer, when it has these parts."""
    end, done = time.monotonic() + 60, why(job)
    while not all(part in done.stdout for part in parts):
        assert time.monotonic() < end, done
        done = why(job)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize("options", [[], ["--min-np", "1", "--evict-after", "300"]])
def test_both_sides_of_a_wait_are_told_while_a_rank_hangs_elsewhere(start, options):
    job = start(3, INIT + TRAIN + HANG, options)
    text = text_with(job, "ranks 0, 2 wait for rank 1, for ")
    assert "s: tensor 'late'\n" in text
    assert "ranks 0, 2 are here:\n    <string>:" in text and " train\n" in text
    assert "rank 1 is here:\n    <string>:" in text and " evaluate\n" in text
    report = json.loads(why(job, "--json").stdout)["report"]
    (wait,) = report["waits"]
    assert (wait["waiting"], wait["missing"]) == ([0, 2], [1]) and wait["tensors"] == ["late"]
    os.kill(job.pids[1], signal.SIGSTOP)
    assert f"kill -CONT {job.pids[1]}" in text_with(job, "rank 1 is stopped (SIGSTOP, or a debugger)")
    os.kill(job.pids[0], signal.SIGSTOP)
    assert "rank 0 is stopped, and cannot be asked" in text_with(job, "rank 0 is stopped, and")


def test_ranks_that_wait_for_one_another_are_told(start):
    call = "horo.allreduce(numpy.ones(4), name='xy'[rank])\n"
    job = start(2, INIT + READY + call, env={"HORO_DEADLOCK_MS": "0"})
    waits = "rank 0 waits for rank 1", "rank 1 waits for rank 0"  # each is told when it is a second old
    text = text_with(job, "ranks 0, 1 wait for one another: none of them can go on", *waits)
    assert "tensor 'x'" in text and "tensor 'y'" in text


def test_the_start_is_told_with_the_rank_that_is_missing(start):
    program = "import horo.numpy as horo\n" + READY + "if rank == 1: time.sleep(600)\nhoro.init()\n"
    job = start(2, program)
    text = text_with(job, "rank 0 waits in horo.init() for rank 1, which has not called it, for ")
    assert "rank 0 is here:\n    <string>:7 <module>\n" in text
    assert f"rank 1: process {job.pids[1]}, python" in text and " sleeps\n" in text


def test_a_healthy_job_and_one_that_has_ended(start):
    job = start(2, INIT + TRAIN + READY + WAIT)
    done = why(job)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("job ") and "no rank waits for another for 1 s or more" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert job.end() == (0, "")
    done = why(job)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"horo why: no job {job.process.pid} of this user runs on this host\n"


def test_a_job_without_a_session_of_horo_is_told(start):
    done = why(start(2, READY + WAIT))
    assert done.returncode == 0 and "no rank has called horo.init() yet" in done.stdout
