"""Works of torch.distributed whose tensors are on devices: values by NCCL, and streams that wait, not the host."""

import contextlib
import datetime
import os
import threading
import time

import claims
import torch
import torch.distributed as dist

import horo.torch as hvd
from horo.torch import devices
from horo.torch.distributed import TimedOut

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.complex64, torch.bool)
hvd.init()
dist.init_process_group("horo")
me, size = dist.get_rank(), dist.get_world_size()


def values(rank, count, dtype=torch.float32):
    return (torch.arange(count) + 100 * rank).to(dtype)


def of_all(count, more=0, dtype=torch.float32):
    return [values(rank, count + more * rank, dtype) for rank in range(size)]


def room(count, more=0, dtype=torch.float32):
    return [torch.zeros(count + more * rank, dtype=dtype) for rank in range(size)]


def equal(found, expected):
    found, expected = (torch.cat(list(each)) for each in (found, expected))
    assert torch.equal(found, expected), (found, expected)


def parts_of_any_size_arrive():
    for dtype in DTYPES:
        for count in (0, 5, 3000):
            whole = torch.zeros(size * count, dtype=dtype)
            dist.all_gather_into_tensor(whole, values(me, count, dtype), async_op=True).wait()
            equal([whole], of_all(count, 0, dtype))
            uneven = room(count, 1, dtype)
            dist.all_gather(uneven, values(me, count + me, dtype))
            equal(uneven, of_all(count, 1, dtype))
            gathered = room(count, 1, dtype)
            dist.gather(values(me, count + me, dtype), gathered if me == 1 else None, dst=1)
            equal(gathered, of_all(count, 1, dtype) if me == 1 else room(count, 1, dtype))
            scattered = torch.zeros(count + me, dtype=dtype)
            dist.scatter(scattered, of_all(count, 1, dtype) if me == 0 else None, src=0)
            equal([scattered], [values(me, count + me, dtype)])
            received = torch.zeros(size * (count + me), dtype=dtype)
            sent = torch.cat([values(me, count + rank, dtype) for rank in range(size)])
            dist.all_to_all_single(received, sent, [count + me] * size, [count + rank for rank in range(size)])
            equal([received], [values(rank, count + me, dtype) for rank in range(size)])


def memory_in_place_and_in_rows_has_the_values():
    """As FSDP2 calls it: the part of this rank lies at its place in the whole."""
    whole = torch.zeros(7 * size)
    mine = whole[7 * me : 7 * me + 7]
    mine.copy_(values(me, 7))
    dist.all_gather_into_tensor(whole, mine)
    equal([whole], of_all(7))
    for at in (me, 0):  # at its place, and at another one
        summed = torch.cat([values(me, 7)] * size)
        out = summed[7 * at : 7 * at + 7]
        dist.reduce_scatter_tensor(out, summed)
        equal([out], [sum(of_all(7))])
    rows = torch.zeros(2 * size, 8)[:, ::2]
    work = dist.all_gather_into_tensor(rows, values(me, 8).view(2, 4), async_op=True)
    future = work.get_future().then(lambda done: done.value()[0] + 1)
    work.wait(), work.wait()
    equal(rows, torch.cat(of_all(8)).view(2 * size, 4))
    equal(future.wait(), rows + 1)


def a_long_row_of_works_ends_in_any_thread():
    outputs, works = [], []
    for turn in range(30):  # more than a call has names
        outputs.append(torch.zeros(size * 50))
        works.append(dist.all_gather_into_tensor(outputs[-1], values(me, 50) + turn, async_op=True))
        outputs.append(torch.cat([values(me, 50) + turn] * size))
        works.append(dist.all_reduce(outputs[-1], async_op=True))
        dist.all_reduce(torch.ones(3), async_op=True)  # dropped
    threads = [threading.Thread(target=work.wait) for work in works for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for turn, (gathered, summed) in enumerate(zip(outputs[::2], outputs[1::2])):
        equal([gathered], [each + turn for each in of_all(50)])
        equal([summed], [(sum(of_all(50)) + size * turn).repeat(size)])
    works[-1].wait(datetime.timedelta(seconds=60))
    assert works[-1].is_success() and works[-1].exception() is None


def groups_in_opposite_orders_do_not_wait_for_each_other():
    pair = dist.new_group([0, 1])
    for _ in range(10):
        whole, of_two = torch.zeros(9 * size), torch.zeros(18)
        calls = [lambda out=whole: dist.all_gather_into_tensor(out, values(me, 9), async_op=True)]
        if me < 2:
            calls.append(lambda out=of_two: dist.all_gather_into_tensor(out, values(me, 9), pair, async_op=True))
        for work in [call() for call in (reversed(calls) if me == 1 else calls)]:
            work.wait()
        equal([whole], of_all(9))
        equal([of_two], of_all(9)[:2] if me < 2 else [torch.zeros(18)])


def wrong_sizes_are_told_where_they_are():
    splits = [2] * size
    for wrong, said in ((3, "the ranks sent"), (1, "out has room")):
        expected = [wrong, *splits[1:]] if me == 0 else splits
        received = torch.zeros(sum(expected))
        told = claims.raises(ValueError, "all_to_all", said) if me == 0 else contextlib.nullcontext()
        with told:
            dist.all_to_all_single(received, torch.ones(2 * size), expected, splits)
        assert me == 0 or received.sum() == 2 * size


def a_wait_returns_before_the_device_is_done():
    """And one with a timeout does not."""
    os.environ["HORO_FAKE_NCCL_SLOW"] = "1"  # what rank 1 sends takes 200 ms
    pair = dist.new_group([0, 1])
    devices.places.after_wait = lambda number: None
    dist.barrier()
    tensor, began = torch.ones(5), time.monotonic()
    work = dist.all_reduce(tensor, group=pair, async_op=True) if me < 2 else None
    if me == 0:
        work.wait(), work.get_future().wait()
        is_done, took = work.is_completed(), time.monotonic() - began
        assert took > 0.15 or not is_done
        assert work.wait(datetime.timedelta(seconds=60)) and work.is_completed()
        equal([tensor], [torch.full((5,), 2.0)])
    elif me == 1:
        work.wait(datetime.timedelta(seconds=60))
    del devices.places.after_wait, os.environ["HORO_FAKE_NCCL_SLOW"]


def a_wait_for_a_late_rank_ends_with_its_timeout():
    if me == 0:
        with claims.raises(TimedOut, "all_reduce", "0.2 s"):
            dist.all_reduce(torch.ones(4), async_op=True).wait(datetime.timedelta(seconds=0.2))
    if me == 0:
        dist.send(torch.ones(1), 1)
    elif me == 1:
        dist.recv(torch.zeros(1), 0)
    if me != 0:
        dist.all_reduce(torch.ones(4))
    dist.barrier()


def the_group_is_destroyed_with_works_in_flight():
    for _ in range(10):
        dist.all_reduce(torch.ones(100_000), async_op=True)
    dist.barrier()  # all ranks have made these calls
    dist.destroy_process_group()


claims.check(
    parts_of_any_size_arrive,
    memory_in_place_and_in_rows_has_the_values,
    a_long_row_of_works_ends_in_any_thread,
    groups_in_opposite_orders_do_not_wait_for_each_other,
    wrong_sizes_are_told_where_they_are,
    a_wait_returns_before_the_device_is_done,
    a_wait_for_a_late_rank_ends_with_its_timeout,
    the_group_is_destroyed_with_works_in_flight,
    init=False,
)
