"""init and shutdown in any order and any thread; threads that submit and wait; works that outlive their handles.

The first argument is a folder in which ranks leave marks for one another.
"""

import gc
import os
import sys
import threading
import time

import claims
import torch
from claims import raises

import horo.torch as hvd

THREADS = 8
TENSORS = 200
IN_FLIGHT = 5000


def in_threads(count, call):
    """call(i) in so many threads at once; the first exception of any comes out here."""
    errors = []

    def run(i):
        try:
            call(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def total(name, value=1.0):
    return hvd.allreduce(torch.tensor([value]), name=name, op=hvd.Sum).item()


def meet(name):
    """All ranks are here, and none is in a collective any more: a shutdown with works in flight would cut that off."""
    end = time.monotonic() + 60
    open(os.path.join(sys.argv[1], f"{name}.{hvd_rank}"), "w").close()
    while not all(os.path.exists(os.path.join(sys.argv[1], f"{name}.{rank}")) for rank in range(hvd.size())):
        assert time.monotonic() < end, f"no rank came to {name}"
        time.sleep(0.01)


def shutdown_without_init_does_nothing():
    hvd.shutdown()
    hvd.shutdown()
    hvd.init()


def init_in_a_thread_serves_all():
    hvd.shutdown()
    in_threads(1, lambda _: hvd.init())
    assert total("from the main thread") == hvd.size()
    hvd.shutdown()
    in_threads(4, lambda _: hvd.init())  # one of them makes the session
    assert total("after four") == hvd.size()


def init_works_after_an_init_that_failed():
    hvd.shutdown()
    with raises(ValueError, "HORO_DEADLINE_MS", "soon"):
        hvd.init(settings={"HORO_DEADLINE_MS": "soon"})
    assert not hvd.is_initialized()
    if hvd_rank == 1:
        with raises(hvd.PeerLost):
            hvd.init(settings={"HORO_ADDR": "127.0.0.1:1", "HORO_START_TIMEOUT_MS": 200})
    hvd.init()
    assert total("after a failure") == hvd.size()


def shutdown_in_four_threads_at_once_ends_it_once():
    in_threads(4, lambda _: hvd.shutdown())
    assert not hvd.is_initialized()
    hvd.init()


def a_waiter_gets_shut_down_when_another_thread_shuts_down():
    meet("waiter")
    begun = threading.Event()
    heard = []

    def wait():
        handle = hvd.allreduce_async(torch.ones(1), name=f"only on rank {hvd_rank}")
        begun.set()
        try:
            hvd.synchronize(handle)
        except hvd.HoroError as error:
            heard.append(type(error))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    begun.wait(60)
    hvd.shutdown()
    thread.join(60)
    # A rank that is slower to shut down hears first that the other has left.
    assert heard in ([hvd.ShutDown], [hvd.Mismatch]), heard
    hvd.init()


def the_interpreter_lock_is_free_in_a_wait():
    """Rank 1 submits what rank 0's main thread waits for only after another thread of rank 0 has counted."""

    def count(_):
        assert sum(1 for _ in range(100_000)) == 100_000
        total("counted")

    if hvd.rank() == 0:
        thread = threading.Thread(target=count, args=(0,), daemon=True)
        thread.start()
        total("awaited")
        thread.join(60)
    else:
        total("counted")
        total("awaited")


def threads_that_submit_at_once_get_what_is_theirs():
    def work(thread):
        handles = [
            hvd.allreduce_async(torch.full((5,), float(thread * i)), name=f"{thread}/{i}", op=hvd.Sum)
            for i in range(TENSORS)
        ]
        for i, handle in enumerate(handles):
            assert hvd.synchronize(handle).tolist() == [thread * i * hvd.size()] * 5

    in_threads(THREADS, work)


def thousands_in_flight_all_arrive():
    handles = [hvd.allreduce_async(torch.full((3,), i), op=hvd.Sum) for i in range(IN_FLIGHT)]
    for i, handle in enumerate(handles):
        assert hvd.synchronize(handle).tolist() == [i * hvd.size()] * 3


def handles_and_optimizers_may_go_in_any_order():
    param = torch.nn.Parameter(torch.zeros(3))
    for shut_down_first in (False, True):
        meet(f"collected {shut_down_first}")
        handles = [hvd.allreduce_async(torch.ones(3), name=f"dropped {i}") for i in range(10)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=0.1), [("param", param)])
        param.sum().backward()
        meet(f"submitted {shut_down_first}")  # else the other may be gone before this rank submits
        if shut_down_first:
            hvd.shutdown()
        del handles[::2], optimizer
        gc.collect()
        if not shut_down_first:
            hvd.shutdown()
        del handles
        gc.collect()
        hvd.init()
        assert total(f"after the collection {shut_down_first}") == hvd.size()


hvd.init()
hvd_rank = hvd.rank()
hvd.shutdown()
claims.check(
    shutdown_without_init_does_nothing,
    init_in_a_thread_serves_all,
    init_works_after_an_init_that_failed,
    shutdown_in_four_threads_at_once_ends_it_once,
    a_waiter_gets_shut_down_when_another_thread_shuts_down,
    the_interpreter_lock_is_free_in_a_wait,
    threads_that_submit_at_once_get_what_is_theirs,
    thousands_in_flight_all_arrive,
    handles_and_optimizers_may_go_in_any_order,
    init=False,
)
