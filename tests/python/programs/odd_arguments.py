"""Arguments that are nearly right: each is taken for what it says, or refused by name, alike on all ranks. A module of
values.py."""

import enum
import itertools
import math

import numpy
import torch
from claims import raises, same_bits

import horo
import horo.numpy
import horo.torch as hvd

ReduceOp = torch.distributed.ReduceOp
MEMBERS = {
    "SUM": hvd.Sum,
    "AVG": hvd.Average,
    "PRODUCT": hvd.Product,
    "MIN": hvd.Min,
    "MAX": hvd.Max,
    "BAND": hvd.BitAnd,
    "BOR": hvd.BitOr,
    "BXOR": hvd.BitXor,
}


class Reduction(enum.IntEnum):
    """Of another library."""

    SUM = 0
    MEAN = 1


def mine(dtype=torch.int64):
    return torch.tensor([hvd.rank() + 5, 3 - hvd.rank()], dtype=dtype)


def members_of_torchs_reduce_op_are_what_they_say():
    for name, op in MEMBERS.items():
        member = getattr(ReduceOp, name)
        for given in (member, ReduceOp(member)):
            for call in (hvd.allreduce, lambda tensor, op: hvd.reduce(tensor, 0, op=op)):
                expected, result = call(mine(), op=op), call(mine(), op=given)
                assert expected is result is None or torch.equal(expected, result), f"{name}: {result}"
        # An earlier call of the same name with an op that is equal as a number is not this call.
        for first in (hvd.Sum, hvd.Average, hvd.Product):
            tensors = [mine(), mine()]
            hvd.allreduce_(tensors[0], op=first, name="again")
            hvd.allreduce_(tensors[1], op=member, name="again")
            same_bits(tensors[1], hvd.allreduce(mine(), op=op))
    same_bits(hvd.reducescatter(torch.ones(3), op=ReduceOp.SUM), hvd.reducescatter(torch.ones(3), op=hvd.Sum))
    sparse = torch.tensor([[1.0 + hvd.rank(), 0.0]]).to_sparse()
    same_bits(hvd.sparse_allreduce_async(sparse, "s", ReduceOp.AVG)().to_dense(), hvd.allreduce(sparse.to_dense()))
    assert hvd.lr_scale(ReduceOp.SUM) == hvd.size()
    assert hvd.allreduce(mine(), op=5).tolist() == hvd.allreduce(mine(), op=hvd.Product).tolist()


def reductions(op):
    """Every call that takes an op."""
    tensor = torch.ones(3)
    return [
        lambda: hvd.allreduce(tensor, op=op),
        lambda: hvd.allreduce_(tensor.clone(), op=op, name="again"),
        lambda: hvd.grouped_allreduce([tensor], op=op),
        lambda: hvd.grouped_allreduce_async_([tensor.clone()], op=op),
        lambda: hvd.reducescatter(tensor, op=op),
        lambda: hvd.grouped_reducescatter([tensor], op=op),
        lambda: hvd.reduce(tensor, 0, op=op),
        lambda: hvd.sparse_allreduce_async(tensor.to_sparse(), None, op),
        lambda: hvd.DistributedOptimizer(torch.optim.SGD([tensor.clone().requires_grad_()], 0.1), op=op),
        lambda: hvd.lr_scale(op),
        lambda: horo.numpy.allreduce(numpy.ones(3), op=op),
    ]


def other_values_are_no_operation():
    hvd.allreduce_(torch.ones(3), op=hvd.Sum, name="again")
    for op in (True, False, 1.0, "Sum", Reduction.SUM, Reduction.MEAN, numpy.int64(1), ReduceOp.PREMUL_SUM, sum, [1]):
        for call in reductions(op):
            with raises(ValueError, f"op={op!r}", "Average", "ReduceOp"):
                call()


def operations_that_a_call_does_not_have_are_named():
    for op, said in ((hvd.Adasum, "op=Adasum"), (ReduceOp.MAX, "op=Max")):
        for call in (
            lambda op: hvd.reducescatter(torch.ones(3), op=op),
            lambda op: hvd.grouped_reducescatter([torch.ones(3)], op=op),
            lambda op: hvd.sparse_allreduce_async(torch.ones(3).to_sparse(), None, op),
        ):
            with raises(ValueError, said, "Average or Sum"):
                call(op)


def average_is_true_or_false():
    with raises(ValueError, "average=1;", "op="):  # hvd.allreduce(tensor, hvd.Sum)
        hvd.allreduce(torch.ones(2), hvd.Sum)
    for average in (0, "no", 1.0, [], torch.tensor(False)):
        with raises(ValueError, f"average={average!r}", "True or False"):
            hvd.allreduce(torch.ones(2), average=average)
    assert hvd.allreduce(mine(), average=numpy.False_).tolist() == hvd.allreduce(mine(), op=hvd.Sum).tolist()


def numbers_are_no_truth_values_and_truth_values_no_numbers():
    tensor, size = torch.ones(3), hvd.size()
    for wrong in (True, False, None, "2", 1j, [1.0], torch.tensor(2.0), torch.tensor(True), 10**400):
        for name, call in itertools.product(
            ["prescale_factor", "postscale_factor"], [hvd.allreduce, hvd.reducescatter]
        ):
            with raises(ValueError, f"{name}"):
                call(tensor, **{name: wrong})
            with raises(ValueError, f"{name}"):
                hvd.allreduce_(torch.ones(3), name="again", **{name: wrong})
    for wrong in (math.nan, math.inf):
        with raises(ValueError, "must be finite"):
            hvd.allreduce(tensor, postscale_factor=wrong)
    for right in (2, numpy.float32(2), numpy.int8(2)):
        same_bits(hvd.allreduce(tensor, prescale_factor=right), torch.full((3,), 2.0))
    for wrong in (True, 1.0, "1", None, [1], torch.tensor(True), torch.tensor(1.0), size, -1, 1 << 32):
        for call in (
            hvd.broadcast,
            hvd.broadcast_,
            hvd.reduce,
            hvd.gather,
            hvd.scatter,
            lambda _, root: hvd.broadcast_object(3, root),
            lambda _, root: hvd.broadcast_parameters([torch.ones(1)], root),
            lambda _, root: hvd.broadcast_optimizer_state(torch.optim.SGD([torch.ones(1)], 0.1), root),
            lambda tensor, to: hvd.send(tensor, to),
            lambda tensor, source: hvd.recv(tensor, source),
        ):
            with raises(ValueError, f"={wrong!r}"):
                call(tensor, wrong)
    for right in (numpy.int64(1), torch.tensor(1)):
        assert hvd.broadcast(mine(), right).tolist() == [6, 2]
    for wrong in (True, 1.0, None, 1 << 31):
        with raises(ValueError, f"priority={wrong!r}"):
            hvd.allreduce_async(tensor, priority=wrong)
        with raises(ValueError, f"priority={wrong!r}"):
            hvd.allreduce_async_(tensor, priority=wrong, name="again")


def splits_are_whole_numbers():
    rows = torch.ones(hvd.size(), 2)
    for wrong in (
        [True] * hvd.size(),
        [1.0] * hvd.size(),
        torch.ones(hvd.size(), dtype=torch.bool),
        torch.ones(hvd.size()),
        "1" * hvd.size(),
        {0, 1, 2},
        iter([1] * hvd.size()),
        [[1]] * hvd.size(),
        3,
    ):
        with raises(ValueError, "splits="):
            hvd.alltoall(rows, wrong)
        if hvd.rank() == 0:
            with raises(ValueError, "splits="):
                hvd.scatter(rows, 0, wrong)
    for right in (range(1, 2), (1,), numpy.ones(1, numpy.int32)):
        hvd.alltoall(rows, list(right) * hvd.size())


def units_may_be_any_iterable_and_have_each_tensor_once():
    for call in (hvd.grouped_allreduce, hvd.grouped_allreduce_, horo.numpy.grouped_allreduce_):
        make = torch.full if call is not horo.numpy.grouped_allreduce_ else numpy.full
        results = call((make((2,), float(i)) for i in range(3)), op=hvd.Sum)
        assert [list(map(float, result)) for result in results] == [[float(i * hvd.size())] * 2 for i in range(3)]
    memory = torch.ones(6)
    for unit in ([memory, memory], [memory[:4], torch.ones(1), memory[3:]], [memory.view(2, 3), memory[5:]]):
        with raises(ValueError, "tensors 1 and", "share memory"):
            hvd.grouped_allreduce_(unit)
    with raises(ValueError, "tensors 1 and 2 of twice", "share memory"):
        horo.numpy.grouped_allreduce_([memory.numpy()[1:], memory.numpy()[:3]], name="twice")
    hvd.grouped_allreduce_([memory[:3], memory[3::2], memory[4::2], memory[:0]], op=hvd.Sum)
    assert memory.tolist() == [float(hvd.size())] * 6


def sets_and_their_ranks_are_checked():
    tensor = torch.ones(3)
    for wrong in (None, 0, [0, 1], "world", hvd.ProcessSet):
        for call in (
            lambda wrong: hvd.allreduce(tensor, process_set=wrong),
            lambda wrong: hvd.allgather(tensor, process_set=wrong),
            lambda wrong: hvd.broadcast(tensor, 0, process_set=wrong),
            lambda wrong: hvd.reducescatter(tensor, process_set=wrong),
            lambda wrong: hvd.alltoall(tensor, process_set=wrong),
            lambda wrong: hvd.barrier(process_set=wrong),
            lambda wrong: hvd.join(process_set=wrong),
            lambda wrong: hvd.metric_average(1.0, process_set=wrong),
            lambda wrong: hvd.lr_scale(process_set=wrong),
            lambda wrong: hvd.broadcast_object(1, process_set=wrong),
            lambda wrong: hvd.broadcast_parameters([tensor], 0, process_set=wrong),
            lambda wrong: hvd.DistributedOptimizer(torch.optim.SGD([tensor], 0.1), process_set=wrong),
        ):
            with raises(TypeError, f"process_set={wrong!r}", "ProcessSet"):
                call(wrong)
    for wrong in ([True, 0], [0.0], ["0"], [None], [0, 0], [], torch.tensor([True, False]), [1 << 32], [0, 10**30]):
        with raises(ValueError, "ProcessSet"):
            hvd.ProcessSet(wrong)
    with raises(ValueError, "shrinks='no'"):
        hvd.ProcessSet([0], shrinks="no")
    pair = hvd.add_process_set([0, 1])
    with raises(ValueError, "already"):
        hvd.add_process_set(pair)
    hvd.remove_process_set(pair)
    assert not hvd.remove_process_set(pair)


def options_of_the_optimizer_are_checked():
    def wrapped(**options):
        hvd.DistributedOptimizer(torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1), **options)

    for name, wrong in itertools.product(
        ["sparse_as_dense", "gradient_as_bucket_view", "cross_barrier"], ["no", 0, 1, None, torch.tensor(True)]
    ):
        with raises(ValueError, f"{name}={wrong!r}", "True or False"):
            wrapped(**{name: wrong})
    for name, wrong in itertools.product(
        ["backward_passes_per_step", "num_groups", "groups", "gradient_predivide_factor"], [True, "2", [1], 0.5j]
    ):
        with raises(ValueError, "groups should consist" if [name, wrong] == ["groups", [1]] else f"{name}={wrong!r}"):
            wrapped(**{name: wrong})
    for name, wrong in (("backward_passes_per_step", 1.5), ("backward_passes_per_step", 0), ("num_groups", 1.0)):
        with raises(ValueError, f"{name}={wrong!r}"):
            wrapped(**{name: wrong})


def texts_are_whole_or_refused():
    for name, said in (
        ("a\0b", "NUL"),
        ("\0", "NUL"),
        ("\ud800", "no UTF-8"),
        (3, "int"),
        (b"x", "bytes"),
        (True, "bool"),
    ):
        for call in (
            lambda name: hvd.allreduce(torch.ones(2), name=name),
            lambda name: hvd.allreduce_(torch.ones(2), name=name),
            lambda name: hvd.grouped_allreduce([torch.ones(2)], name=name),
            lambda name: hvd.allgather(torch.ones(2), name=name),
            lambda name: hvd.broadcast(torch.ones(2), 0, name=name),
            lambda name: hvd.register_op(name, lambda accumulator, value: None),
            lambda name: hvd.DistributedOptimizer(torch.optim.SGD([torch.ones(1)], 0.1), compression=hvd.Codec(name)),
        ):
            with raises(ValueError, said):
                call(name)
            with raises(ValueError, said):  # also when it is no longer the first time
                call(name)
    with raises(ValueError, "whole='no'", "True or False"):
        hvd.register_op("op", lambda accumulator, value: None, whole="no")
    for path in ("a\0b", b"a\0b"):
        with raises(ValueError, "NUL"):
            hvd.start_timeline(path)
    names = ["", "é" * 100, "\x01\x7f", '"\\', "𝛼", " a", "a "]
    handles = [hvd.allreduce_async(torch.full((1,), float(i)), name=name) for i, name in enumerate(names)]
    assert [hvd.synchronize(handle).item() for handle in handles] == list(range(len(names)))
    with raises(ValueError, "HORO_MAX_NAME_BYTES"):
        hvd.allreduce(torch.ones(1), name="x" * 100_000)


def a_nul_in_a_setting_is_refused():
    hvd.shutdown()
    with raises(ValueError, "settings=", "NUL"):
        hvd.init(settings={"HORO_TRANSPORT": "shm\0tcp"})
    hvd.init()


def metrics_are_matched_by_their_keys():
    size, me = hvd.size(), hvd.rank()
    keys = ["loss", "accuracy", 3, ("a", 1), frozenset(["x", "y", "z"]), hvd.Sum, " at 0x7f12ab34"]
    order = keys[me % 4 :] + keys[: me % 4]
    means = hvd.metric_average({key: keys.index(key) + me for key in order}, weight=me + 1)
    weighted = sum(rank * (rank + 1) for rank in range(size)) / sum(range(size + 1))
    assert list(means) == order and all(abs(means[key] - keys.index(key) - weighted) < 1e-12 for key in keys), means
    ends = " on rank 0", "on rank 1, 2"
    with raises(hvd.Mismatch, "'loss'" + ends[0], "'accuracy', 'loss' " + ends[1]):
        hvd.metric_average({"loss": 1.0, "accuracy": 2.0} if me else {"loss": 1.0})
    with raises(hvd.Mismatch, "'loss'" + ends[0], "'Loss' " + ends[1]):
        hvd.metric_average({"Loss" if me else "loss": 1.0})
    with raises(hvd.Mismatch, "a number" + ends[0], "'loss' " + ends[1]):
        hvd.metric_average({"loss": 1.0} if me else 1.0)
    with raises(hvd.Mismatch, "the keys 1" + ends[0], "'1' " + ends[1]):
        hvd.metric_average({"1": 1.0} if me else {1: 1.0})
    for key in (object(), ("a", object())):
        with raises(TypeError, "metric_average: the key <object object at 0x", "expected keys such as strings"):
            hvd.metric_average({key: 1.0})
    with raises(TypeError if me == 1 else hvd.Mismatch, "expected keys" if me == 1 else "a key without a text"):
        hvd.metric_average({object() if me == 1 else "loss": 1.0})
    assert hvd.metric_average(float(me)) == (size - 1) / 2 and hvd.metric_average({}) == {}


def averages_of_integers_do_not_wrap():
    """The sum does not fit into the type; the average does, and is truncated toward zero."""
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        top, bottom = torch.iinfo(dtype).max, torch.iinfo(dtype).min
        parts = [[top, bottom, top, -rank if bottom else rank, top - rank] for rank in range(hvd.size())]
        totals = [sum(each) for each in zip(*parts)]
        expected = [abs(total) // hvd.size() * (1 if total >= 0 else -1) for total in totals]
        tensor = torch.tensor(parts[hvd.rank()], dtype=dtype)
        for order in ("canonical", "fast"):
            assert hvd.allreduce(tensor, order=order).tolist() == expected, f"{dtype}: {hvd.allreduce(tensor)}"
        assert hvd.grouped_allreduce([tensor])[0].tolist() == expected
        assert hvd.allgather(hvd.reducescatter(tensor)).tolist() == expected
        assert hvd.synchronize(hvd.allreduce_async_(tensor.clone())).tolist() == expected
        large = torch.full((300_000,), top, dtype=dtype)
        assert torch.equal(hvd.allreduce(large), large)
        mean = hvd.sparse_allreduce_async(tensor.to_sparse(), None, hvd.Average)()
        assert mean.dtype == dtype and mean.to_dense().tolist() == expected, mean
    for dtype in ("uint16", "uint32", "uint64"):
        top = numpy.full(5, numpy.iinfo(dtype).max, dtype)
        assert numpy.array_equal(horo.numpy.allreduce(top), top), dtype
    with raises(ValueError, "average is not defined for bool"):
        hvd.sparse_allreduce_async(torch.tensor([True]).to_sparse(), None, hvd.Average)


def sparse_tensors_of_different_shapes_are_told():
    shape = (4, 3) if hvd.rank() else (5, 3)
    with raises(hvd.Mismatch, "odd", "[5, 3]", "[4, 3]"):
        hvd.sparse_allreduce_async(torch.eye(*shape).to_sparse(1), "odd", hvd.Sum)()


CLAIMS = [
    members_of_torchs_reduce_op_are_what_they_say,
    other_values_are_no_operation,
    operations_that_a_call_does_not_have_are_named,
    average_is_true_or_false,
    numbers_are_no_truth_values_and_truth_values_no_numbers,
    splits_are_whole_numbers,
    units_may_be_any_iterable_and_have_each_tensor_once,
    sets_and_their_ranks_are_checked,
    options_of_the_optimizer_are_checked,
    texts_are_whole_or_refused,
    a_nul_in_a_setting_is_refused,
    metrics_are_matched_by_their_keys,
    averages_of_integers_do_not_wrap,
    sparse_tensors_of_different_shapes_are_told,
]
