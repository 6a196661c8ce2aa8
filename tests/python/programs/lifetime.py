"""init and shutdown in any order and any thread; threads that submit and wait; works that outlive their handles.

The first argument is a folder for files by which the ranks wait for each other.
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
    """Runs call(i) in `count` threads at once and raises the first exception of any of them."""
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
    """Waits until all ranks have called meet(name). No rank is in a collective then, which a shutdown would end."""
    end = time.monotonic() + 60
    open(os.path.join(sys.argv[1], f"{name}.{hvd_rank}"), "w").close()
    while not all(os.path.exists(os.path.join(sys.argv[1], f"{name}.{rank}")) for rank in range(hvd.size())):
        assert time.monotonic() < end, f"not all ranks reached {name}"
        time.sleep(0.01)


def shutdown_without_init_does_nothing():
    hvd.shutdown()
    hvd.shutdown()
    hvd.init()


def init_in_one_thread_is_valid_for_all():
    hvd.shutdown()
    in_threads(1, lambda _: hvd.init())
    assert total("from the main thread") == hvd.size()
    hvd.shutdown()
    in_threads(4, lambda _: hvd.init())  # one of them creates the session
    assert total("after four") == hvd.size()


def init_works_after_a_failed_init():
    hvd.shutdown()
    with raises(ValueError, "HORO_DEADLINE_MS", "soon"):
        hvd.init(settings={"HORO_DEADLINE_MS": "soon"})
    assert not hvd.is_initialized()
    if hvd_rank == 1:
        with raises(hvd.PeerLost):
            hvd.init(settings={"HORO_ADDR": "127.0.0.1:1", "HORO_START_TIMEOUT_MS": 200})
    hvd.init()
    assert total("after a failure") == hvd.size()


def concurrent_shutdowns_end_the_session_once():
    in_threads(4, lambda _: hvd.shutdown())
    assert not hvd.is_initialized()
    hvd.init()


def a_waiting_thread_gets_ShutDown_from_another_threads_shutdown():
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
    # A rank that shuts down later may first receive that the other rank has left.
    assert heard in ([hvd.ShutDown], [hvd.Mismatch]), heard
    hvd.init()


def a_wait_releases_the_interpreter_lock():
    """The main thread of rank 0 waits for a tensor that rank 1 submits after another thread of rank 0 has counted."""

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


def concurrent_submits_get_their_own_results():
    def work(thread):
        handles = [
            hvd.allreduce_async(torch.full((5,), float(thread * i)), name=f"{thread}/{i}", op=hvd.Sum)
            for i in range(TENSORS)
        ]
        for i, handle in enumerate(handles):
            assert hvd.synchronize(handle).tolist() == [thread * i * hvd.size()] * 5

    in_threads(THREADS, work)


def thousands_of_works_in_flight_all_end():
    handles = [hvd.allreduce_async(torch.full((3,), i), op=hvd.Sum) for i in range(IN_FLIGHT)]
    for i, handle in enumerate(handles):
        assert hvd.synchronize(handle).tolist() == [i * hvd.size()] * 3


def handles_and_optimizers_may_be_collected_in_any_order():
    param = torch.nn.Parameter(torch.zeros(3))
    for shut_down_first in (False, True):
        meet(f"collected {shut_down_first}")
        handles = [hvd.allreduce_async(torch.ones(3), name=f"dropped {i}") for i in range(10)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=0.1), [("param", param)])
        param.sum().backward()
        meet(f"submitted {shut_down_first}")  # else the other rank may have shut down before this rank submits
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
    init_in_one_thread_is_valid_for_all,
    init_works_after_a_failed_init,
    concurrent_shutdowns_end_the_session_once,
    a_waiting_thread_gets_ShutDown_from_another_threads_shutdown,
    a_wait_releases_the_interpreter_lock,
    concurrent_submits_get_their_own_results,
    thousands_of_works_in_flight_all_end,
    handles_and_optimizers_may_be_collected_in_any_order,
    init=False,
)
