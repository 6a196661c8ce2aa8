"""Works and futures: asynchronous starts, callbacks that start collectives, timeouts, and errors by name."""

import datetime
import gc
import threading
import time

import torch
import torch.distributed as dist
from claims_torch import check, equal, raises
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import horo
from horo import _default
from horo.torch.distributed import TimedOut
from horo.torch.distributed.work import Work


def me():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def total(extra=0):
    return float(sum(range(size())) + extra * size())


def ones():
    return torch.full((4,), float(me()))


def a_late_rank_holds_up_no_rank_that_computes():
    if me() == size() - 1:
        time.sleep(1)
    tensor, began = ones(), time.monotonic()
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    assert time.monotonic() - began < 0.5
    if me() == 0:
        assert not work.is_completed() and not future.done()
    work.wait()
    equal(tensor, torch.full((4,), total()))


def a_late_rank_holds_up_no_backward_of_ddp():
    """Gradients are computed to the last one while the buckets before it wait for the late rank."""
    torch.manual_seed(3)
    layers = [torch.nn.Linear(64, 64) for _ in range(6)]
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)
    for _ in range(2):  # DDP makes its buckets anew after the first step
        net(torch.ones(2, 64)).sum().backward()
    computed = []
    layers[0].weight.register_hook(lambda _: computed.append(time.monotonic()))
    loss = net(torch.full((2, 64), float(me()))).sum()
    dist.barrier()
    began = time.monotonic()
    if me() == size() - 1:
        time.sleep(1)
    loss.backward()
    assert time.monotonic() - began > 0.9  # the result has the gradients of the late rank
    assert computed[0] - began < 0.5 or me() == size() - 1


def a_future_has_the_tensors():
    tensor = ones()
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    equal(doubled.wait(), torch.full((4,), 2 * total()))


def a_callback_waits_for_a_collective():
    def again(done):
        further = done.value()[0].clone()
        waited = dist.all_reduce(further, async_op=True).get_future().wait()[0].clone()
        dist.all_reduce(waited)
        return waited

    futures = [dist.all_reduce(ones() + turn, async_op=True).get_future().then(again) for turn in range(6)]
    for turn, future in enumerate(futures):
        equal(future.wait(), torch.full((4,), total(turn) * size() * size()))


def callbacks_have_the_order_of_their_works():
    order = []
    futures = [dist.all_reduce(ones(), async_op=True).get_future() for _ in range(12)]
    futures = [future.then(lambda _, turn=turn: order.append(turn)) for turn, future in enumerate(futures)]
    torch.futures.wait_all(futures)
    assert order == list(range(12)), order


def is_released(step):
    """30 steps leave no work, and nothing that the session keeps for one. Garbage is not collected meanwhile, because
    the collector knows nothing of the memory of devices."""
    session = _default.session()
    works = lambda: sum(type(each) is Work for each in gc.get_objects())  # noqa: E731
    there = lambda: (works(), len(session.kept), len(session._on_devices))  # noqa: E731
    gc.collect()
    gc.disable()
    try:
        before = there()
        for _ in range(30):
            step()
        deadline = time.monotonic() + 10
        while any(now > then for now, then in zip(there(), before)):
            assert time.monotonic() < deadline, (before, there())
            time.sleep(0.01)
            session.sweep()
    finally:
        gc.enable()


def works_with_futures_are_released():
    is_released(lambda: dist.all_reduce(torch.ones(1000), async_op=True).get_future().wait())
    further = lambda done: dist.all_reduce(done.value()[0].clone(), async_op=True).get_future().wait()  # noqa: E731
    is_released(lambda: dist.all_reduce(torch.ones(1000), async_op=True).get_future().then(further).wait())


def works_of_ddp_are_released():
    for hook in (None, default_hooks.fp16_compress_hook):
        layers = [torch.nn.Linear(64, 64) for _ in range(3)]
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)
        if hook is not None:
            net.register_comm_hook(None, hook)
        is_released(lambda net=net: net(torch.ones(2, 64)).sum().backward())


def threads_end_when_nothing_is_to_be_done():
    deadline = time.monotonic() + 10
    while any(thread.name.startswith("horo_futures") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.05)


def an_operation_that_takes_too_long_raises_timed_out():
    if me() == 0:
        work = dist.all_reduce(ones(), async_op=True)
        with raises(TimedOut, "all_reduce", "0.2 s", "rank 0"):
            work.wait(datetime.timedelta(seconds=0.2))
        options = dist.AllreduceOptions()
        options.timeout = datetime.timedelta(seconds=0.1)
        late = dist.group.WORLD.allreduce([torch.ones(2)], options)
        with raises(TimedOut, "0.1 s"):
            late.wait()
        failed = dist.group.WORLD.allreduce([torch.ones(3)], options).get_future()
        with raises(RuntimeError, "TimedOut", "0.1 s"):
            failed.then(lambda done: done.value()).wait()
    else:
        time.sleep(1)
        for tensor in (ones(), torch.ones(2), torch.ones(3)):
            dist.all_reduce(tensor)
    dist.barrier()


def a_monitored_barrier_names_the_missing_ranks():
    group = dist.group.WORLD
    group.monitored_barrier()
    if me() == size() - 1:
        time.sleep(1.5)
    else:
        said = f"ranks {size() - 1} failed to pass monitoredBarrier in 1500 ms" if me() == 0 else "errors while waiting"
        with raises(TimedOut, said):
            group.monitored_barrier(datetime.timedelta(seconds=1.5), wait_all_ranks=True)
    dist.barrier()


def ranks_that_disagree_get_a_mismatch():
    gathered = [torch.zeros(2 + rank) for rank in range(size())]
    with raises(horo.Mismatch, "all_gather", "rank 1"):
        dist.all_gather(gathered, torch.zeros(1 + size() - me()))
    with raises(horo.Mismatch, "rank 1", "all_reduce"):  # HORO_DEADLOCK_MS
        dist.all_reduce(torch.zeros(3 + me()))
    if me() < 2:
        with raises(horo.Mismatch, "message"):
            dist.send(torch.zeros(3), 1) if me() == 0 else dist.recv(torch.zeros(5), 0)
    dist.barrier()


def what_is_pending_at_the_end_holds_up_no_exit():
    group = dist.group.WORLD
    pending = [group.recv([torch.zeros(3)], (me() + 1) % size(), 77).get_future() for _ in range(20)]
    pending[0].then(lambda done: done.value())


check(
    a_late_rank_holds_up_no_rank_that_computes,
    a_late_rank_holds_up_no_backward_of_ddp,
    a_future_has_the_tensors,
    a_callback_waits_for_a_collective,
    callbacks_have_the_order_of_their_works,
    works_with_futures_are_released,
    works_of_ddp_are_released,
    threads_end_when_nothing_is_to_be_done,
    an_operation_that_takes_too_long_raises_timed_out,
    ranks_that_disagree_get_a_mismatch,
    a_monitored_barrier_names_the_missing_ranks,
    what_is_pending_at_the_end_holds_up_no_exit,
)
