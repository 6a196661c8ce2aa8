"""Processes forked from a rank cannot use its session; whatever they do and however they end, the rank continues."""

import multiprocessing
import os
import sys

import claims
import torch
from claims import raises

import horo.torch as hvd

FORKED = ("was forked from rank", "after horo.init", "spawn")


def still_works(name):
    assert hvd.allreduce(torch.ones(1), name=name, op=hvd.Sum).item() == hvd.size()


def in_child(call):
    """Runs call in a forked child, which then ends like a program, with its atexit functions."""
    child = os.fork()
    if child == 0:
        try:
            call()
        except BaseException as error:
            print(f"in the child: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def every_call_in_a_child_raises_shut_down():
    handle = hvd.allreduce_async(torch.ones(3), name="in flight")
    param = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=0.1), [("forked", param)])
    rank = hvd.rank()

    def child():
        assert (hvd.rank(), hvd.is_initialized()) == (rank, False)
        tensor = torch.ones(3)
        for call in (
            lambda: hvd.allreduce(tensor),
            lambda: hvd.synchronize(handle),
            lambda: hvd.barrier(),
            lambda: hvd.init(),
            lambda: hvd.counters(),
            lambda: param.sum().backward(),
            lambda: optimizer.step(),
        ):
            with raises(hvd.ShutDown, *FORKED, f"rank {rank}"):
                call()
        hvd.shutdown()

    in_child(child)
    assert (hvd.synchronize(handle) == 1).all()
    param.sum().backward()
    optimizer.step()
    still_works("after a child")


def a_child_may_end_by_an_exception():
    child = os.fork()
    if child == 0:
        sys.stderr = open(os.devnull, "w")
        sys.excepthook(ValueError, ValueError("in the child"), None)
        sys.exit(1)
    os.waitpid(child, 0)
    still_works("after an exception in a child")


def a_child_may_be_a_separate_world():
    def child():
        for name in ("HORO_RANK", "HORO_SIZE", "HORO_LOCAL_RANK", "HORO_LOCAL_SIZE", "HORO_ADDR"):
            os.environ.pop(name, None)
        hvd.init()
        assert hvd.size() == 1
        still_works("alone")
        hvd.shutdown()

    in_child(child)
    still_works("after another world")


def square(x):
    return x * x


def pools_and_loaders_work():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(square, range(20)) == [x * x for x in range(20)]
    still_works("after a pool")
    loader = torch.utils.data.DataLoader(list(range(64)), batch_size=8, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        for batch in loader:
            summed = hvd.allreduce(batch, name="batch", op=hvd.Sum)
            assert (summed == batch * hvd.size()).all()


claims.check(
    every_call_in_a_child_raises_shut_down,
    a_child_may_end_by_an_exception,
    a_child_may_be_a_separate_world,
    pools_and_loaders_work,
)
