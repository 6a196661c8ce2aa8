"""Ranks that wait for a tensor that others never submit: they have left, or make their calls in another order."""

import os
import pathlib
import tempfile
import time

import torch
from table import AGAIN, on_ranks

import horo.torch as hvd

SECTION = "Ranks that disagree"
WAIT_S = 60
UNNAMED = (r"all_reduce#\d+", "all_reduce#<n>")
SOME_TIME = (
    (r"\[horo [\d:.]+ ", "[horo <time> "),
    (r"for \d+\.\d s", "for <time>"),
    (r"\S*tests/errors/(\w+\.py):\d+", r"\1:<line>"),
)


@on_ranks(
    SECTION,
    "Calls without a name that do not pair up",
    do="Give the calls names, or make the same calls in the same order on all ranks",
    changing=(UNNAMED,),
)
def calls_that_do_not_pair_up():
    hvd.allreduce(torch.ones(2 + hvd.rank()))


@on_ranks(SECTION, "Another order of summation", do="Pass the same `order` on all ranks")
def another_order():
    hvd.allreduce(torch.ones(2), name="summed", order="fast" if hvd.rank() else "canonical")


def evaluate(done):
    """Runs until the file exists."""
    end = time.monotonic() + WAIT_S
    while not done.exists() and time.monotonic() < end:
        time.sleep(0.01)
    done.unlink()


@on_ranks(
    SECTION,
    "A rank does not submit a tensor within a limit of the user",
    do="Submit it on every rank; or raise `HORO_STALL_LIMIT_MS`, or leave it at 0, if a rank may take longer",
    where="rank 0's log after `HORO_STALL_WARNING_MS`; at the call, every rank that submitted it; the others' log",
    env={"HORO_STALL_LIMIT_MS": "3000", "HORO_STALL_WARNING_MS": "500", "HORO_ANSWER_TIMEOUT_MS": "60000"},
    log=r"rank 0\] warning: tensor 'lonely'",
    changing=SOME_TIME,
)
def a_rank_never_submits():
    done = pathlib.Path(tempfile.gettempdir()) / f"horo-lonely-{os.environ['HORO_ADDR'].rpartition(':')[2]}"
    if hvd.rank() == 1:
        return evaluate(done)
    try:
        hvd.allreduce(torch.ones(2), name="lonely")
    finally:
        done.touch()


@on_ranks(
    SECTION,
    "A rank is slow",
    do="Nothing, if it continues; else look at the call sites",
    where="rank 0's log after `HORO_STALL_WARNING_MS`, then at growing pauses",
    env={"HORO_STALL_WARNING_MS": "500", "HORO_ANSWER_TIMEOUT_MS": "60000"},
    log=r"rank 0\] warning: tensor 'slow'",
    changing=SOME_TIME,
)
def a_slow_rank():
    if hvd.rank() == 1:
        time.sleep(2)
    hvd.allreduce(torch.ones(2), name="slow")


@on_ranks(
    SECTION,
    "Ranks wait for one another",
    do="Make the same calls in the same order on all ranks",
    env={"HORO_DEADLOCK_MS": "2000", "HORO_ANSWER_TIMEOUT_MS": "60000"},
    changing=SOME_TIME,
)
def a_deadlock():
    hvd.allreduce(torch.ones(2), name="loss" if hvd.rank() else "accuracy")


@on_ranks(
    "Ranks that die, stop or leave",
    "A rank leaves, or its program ends, while others wait for it",
    do="Run the same number of steps on all ranks; a rank with less data uses empty batches",
    session=AGAIN,
)
def a_rank_leaves():
    if hvd.rank() == 1:
        return hvd.shutdown()
    hvd.allreduce(torch.ones(2), name="one more step")
