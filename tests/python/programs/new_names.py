"""Names that are used once, for ever, where few are kept: every value is right, and the memory of a rank stays small.

Arguments: the number of names, and the seconds that rank 1 sleeps after each 1,000 of them."""

import resource
import sys
import time

import claims
import torch
from claims import raises

import horo.torch as hvd
from horo.errors import Mismatch

NAMES, PAUSE_S = int(sys.argv[1]), float(sys.argv[2])
BATCH = 100


def memory_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def every_new_name_has_the_sum():
    """In batches that end together, one in ten in place; with a name that is used in all batches, and a unit."""
    rank, size = hvd.rank(), hvd.size()
    total, at_first = size * (size + 1) / 2, None
    for begin in range(0, NAMES, BATCH):
        steady = hvd.allreduce_async(torch.ones(3), name="steady", op=hvd.Sum)
        unit = hvd.grouped_allreduce_async([torch.ones(2), torch.ones(4)], name=f"unit.{begin}", op=hvd.Sum)
        tensors = [torch.tensor([float(rank + 1), float(step)]) for step in range(begin, begin + BATCH)]
        handles = [
            (hvd.allreduce_async if step % 10 else hvd.allreduce_async_)(tensor, name=f"loss.{step}", op=hvd.Sum)
            for step, tensor in enumerate(tensors, begin)
        ]
        for step, handle in enumerate(handles, begin):
            assert hvd.synchronize(handle).tolist() == [total, float(step * size)]
        assert hvd.synchronize(steady).tolist() == [size] * 3
        assert [t.tolist() for t in hvd.synchronize(unit)] == [[size] * 2, [size] * 4]
        if rank == 1 and begin % 1000 == 0:
            time.sleep(PAUSE_S)
        if begin >= NAMES // 2 and at_first is None:
            at_first = memory_kib()
    grown = memory_kib() - at_first
    assert grown < 64 << 10, f"{grown} KiB more after the second half of the names"


def other_collectives_and_sets_take_new_names():
    rank, size = hvd.rank(), hvd.size()
    pair = hvd.add_process_set([0, 1])
    for step in range(200):
        value = torch.full((rank + 1, 2), float(rank))
        gathered = hvd.allgather(value, name=f"gather.{step}")
        assert gathered.shape[0] == size * (size + 1) / 2
        assert hvd.broadcast(value[:1], 1, name=f"cast.{step}").tolist() == [[1.0, 1.0]]
        if rank < 2:
            summed = hvd.allreduce(torch.ones(step % 7 + 1), name=f"pair.{step}", op=hvd.Sum, process_set=pair)
            assert summed.tolist() == [2.0] * (step % 7 + 1)
    hvd.remove_process_set(pair)


def a_forgotten_name_may_have_another_shape():
    for length in (5, 6):
        assert hvd.allreduce(torch.ones(length), name="loss.1", op=hvd.Sum).tolist() == [hvd.size()] * length


def a_disagreement_about_a_forgotten_name_is_named():
    with raises(Mismatch, "'loss.2'"):
        hvd.allreduce(torch.ones(7 + hvd.rank()), name="loss.2", op=hvd.Sum)
    assert hvd.allreduce(torch.ones(7), name="loss.2", op=hvd.Sum).tolist() == [hvd.size()] * 7


def names_that_are_used_several_times_are_forgotten_too():
    for begin in range(0, 5_000, BATCH):
        for call in (hvd.allreduce_async_, hvd.allreduce_async_, hvd.allreduce_async, hvd.allreduce_async):
            names = [f"micro.{step}" for step in range(begin, begin + BATCH)]
            for handle in [call(torch.ones(2), name=name, op=hvd.Sum) for name in names]:
                assert hvd.synchronize(handle).tolist() == [hvd.size()] * 2


claims.check(
    every_new_name_has_the_sum,
    other_collectives_and_sets_take_new_names,
    a_forgotten_name_may_have_another_shape,
    a_disagreement_about_a_forgotten_name_is_named,
    names_that_are_used_several_times_are_forgotten_too,
)
