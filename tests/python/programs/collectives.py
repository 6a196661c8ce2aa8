"""Every collective on every dtype against torch; in place and asynchronous."""

import itertools

import claims
import torch
from claims import reduced, same_bits, value

import horo.torch as hvd

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
DTYPES = [*FLOATS, torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool]
OPS = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]
SHAPES = [(), (5,), (0, 3), (7, 3, 2), (3000,)]


def mine(dtype, shape, seed=0):
    return value(hvd.rank(), dtype, shape, seed)


def all_of(dtype, shape, seed=0):
    return [value(rank, dtype, shape, seed) for rank in range(hvd.size())]


def all_reduce_has_the_canonical_bits():
    cases = [case for case in itertools.product(DTYPES, OPS, SHAPES) if case[0] != torch.bool or case[1] != hvd.Average]
    handles = []
    for dtype, op, shape in cases:
        handles.append(hvd.allreduce_async(mine(dtype, shape), name=f"{dtype}{op}{shape}", op=op))
    for handle, (dtype, op, shape) in zip(handles, cases):
        same_bits(hvd.synchronize(handle), reduced(all_of(dtype, shape), op))


def factors_are_applied_before_and_after():
    for dtype, op in itertools.product(FLOATS, [hvd.Average, hvd.Sum]):
        result = hvd.allreduce(mine(dtype, (99,)), op=op, prescale_factor=0.3, postscale_factor=7.0)
        same_bits(result, reduced(all_of(dtype, (99,)), op, 0.3, 7.0))


def average_is_the_default():
    expected = reduced(all_of(torch.float32, (5,)), hvd.Average)
    tensor = mine(torch.float32, (5,))
    same_bits(hvd.allreduce(tensor), expected)
    same_bits(hvd.allreduce(tensor, average=True), expected)
    same_bits(hvd.allreduce(tensor, average=False), reduced(all_of(torch.float32, (5,)), hvd.Sum))
    same_bits(tensor, mine(torch.float32, (5,)))


def fast_order_is_close():
    result = hvd.allreduce(mine(torch.float64, (3000,)), order="fast")
    torch.testing.assert_close(result, reduced(all_of(torch.float64, (3000,)), hvd.Average))


def in_place_writes_the_tensor_itself():
    tensor = mine(torch.float32, (7, 3))
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    same_bits(tensor, reduced(all_of(torch.float32, (7, 3)), hvd.Sum))
    leaf = torch.nn.Parameter(mine(torch.float32, (4,)))
    hvd.broadcast_(leaf, root_rank=1)
    same_bits(leaf.detach(), value(1, torch.float32, (4,)))


def strided_tensors_are_accepted():
    wide = mine(torch.float32, (6, 8))
    part = wide[:, ::2]
    expected = reduced([each[:, ::2] for each in all_of(torch.float32, (6, 8))], hvd.Sum)
    same_bits(hvd.allreduce(part, op=hvd.Sum), expected)
    hvd.allreduce_(part, op=hvd.Sum)
    same_bits(part, expected)
    same_bits(wide[:, 1::2], mine(torch.float32, (6, 8))[:, 1::2])


def all_gather_joins_rows_in_order_of_ranks():
    for seed, dtype in enumerate(DTYPES):
        parts = [value(rank, dtype, (rank, 2), seed) for rank in range(hvd.size())]
        same_bits(hvd.allgather(parts[hvd.rank()]), torch.cat(parts))


def broadcast_brings_the_roots_tensor():
    handles = []
    for root, dtype, shape in itertools.product(range(hvd.size()), DTYPES, SHAPES):
        handle = hvd.broadcast_async(mine(dtype, shape), root, name=f"b{root}{dtype}{shape}")
        handles.append((handle, value(root, dtype, shape)))
    for handle, expected in handles:
        same_bits(hvd.synchronize(handle), expected)


def reduce_scatter_gives_the_first_ranks_one_row_more():
    for dtype, rows in itertools.product(FLOATS, [0, 1, 7, 12]):
        total = reduced(all_of(dtype, (rows, 5)), hvd.Average)
        counts = [rows // hvd.size() + (rank < rows % hvd.size()) for rank in range(hvd.size())]
        same_bits(hvd.reducescatter(mine(dtype, (rows, 5))), total.split(counts)[hvd.rank()])


def order_of_submission_may_differ():
    names = [f"shuffled{i}" for i in range(20)]
    order = names if hvd.rank() % 2 else names[::-1]
    handles = {name: hvd.allreduce_async(torch.tensor([float(name[8:])]), name=name) for name in order}
    for name in names:
        same_bits(hvd.synchronize(handles[name]), torch.tensor([float(name[8:])]))


def handles_are_ints_that_end_once():
    handle = hvd.allreduce_async(torch.ones(3), name="polled")
    assert isinstance(handle, int)
    while not hvd.poll(handle):
        pass
    same_bits(hvd.synchronize(handle), torch.ones(3))
    assert hvd.synchronize(handle) is None
    assert hvd.synchronize(123456789) is None


def a_dropped_handle_keeps_its_tensors_until_the_end():
    from horo import _default

    for i in range(50):
        hvd.allreduce_async_(torch.ones(1000), name=f"dropped{i}")
    hvd.barrier()
    hvd.allreduce(torch.ones(1))
    hvd.barrier()
    hvd.allreduce(torch.ones(1))
    assert len(_default.session().kept) < 50


def unnamed_and_named_live_together():
    first = hvd.allreduce_async(torch.tensor([1.0]))
    second = hvd.allreduce_async(torch.tensor([2.0]), name="named")
    third = hvd.allreduce_async(torch.tensor([3.0]))
    assert [hvd.synchronize(h).item() for h in (third, second, first)] == [3.0, 2.0, 1.0]


claims.check(
    all_reduce_has_the_canonical_bits,
    factors_are_applied_before_and_after,
    average_is_the_default,
    fast_order_is_close,
    in_place_writes_the_tensor_itself,
    strided_tensors_are_accepted,
    all_gather_joins_rows_in_order_of_ranks,
    broadcast_brings_the_roots_tensor,
    reduce_scatter_gives_the_first_ranks_one_row_more,
    order_of_submission_may_differ,
    handles_are_ints_that_end_once,
    a_dropped_handle_keeps_its_tensors_until_the_end,
    unnamed_and_named_live_together,
)
