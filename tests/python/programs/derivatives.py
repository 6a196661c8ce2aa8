"""The derivative of every differentiable collective, against autograd over the tensors of all ranks in one process: the
loss is the sum of the losses of all ranks. A module of values.py."""

import itertools
import math

import torch
from claims import raises, value

import horo.torch as hvd
import horovod.torch as horovod

DOUBLE = torch.float64


def losses(outputs, rank):
    """A rank's loss of its outputs: not linear, and another one on each rank."""
    weights = [value(rank, DOUBLE, out.shape, 50 + i) for i, out in enumerate(outputs)]
    return sum((w * (out + out * out / 3)).real.sum() for w, out in zip(weights, outputs))


def agree(tensors, collective, oracle, members=None, scale=1.0, tolerance=1e-12):
    """collective(this rank's tensors) has the derivative of oracle(tensors by rank) -> outputs by rank. scale: what the
    gradient is multiplied by."""
    members = list(range(hvd.size())) if members is None else members
    if hvd.rank() not in members:
        return
    leaves = [[tensor.to(wide(tensor)).requires_grad_() for tensor in tensors(rank)] for rank in members]
    total = sum(losses(outputs, rank) for rank, outputs in zip(members, oracle(leaves)))
    place = members.index(hvd.rank())
    expected = torch.autograd.grad(total, leaves[place], allow_unused=True)
    mine = [tensor.clone().requires_grad_() for tensor in tensors(hvd.rank())]
    losses([out.to(wide(out)) for out in collective(mine)], hvd.rank()).backward()
    for tensor, gradient in zip(mine, expected):
        gradient = torch.zeros_like(tensor) if gradient is None else gradient * scale
        assert tensor.grad.dtype == tensor.dtype and tensor.grad.shape == tensor.shape
        assert torch.allclose(tensor.grad.to(wide(tensor)), gradient.to(wide(tensor)), tolerance, tolerance), (
            f"{tensor.grad}, expected {gradient}"
        )


def wide(tensor):
    return torch.complex128 if tensor.is_complex() else DOUBLE


COMBINE = {
    hvd.Sum: lambda parts: parts.sum(0),
    hvd.Average: lambda parts: parts.mean(0),
    hvd.Max: lambda parts: parts.amax(0),  # shares the gradient of equal values, as here
    hvd.Min: lambda parts: parts.amin(0),
    hvd.Product: lambda parts: parts.prod(0),
}


def reduced(op, prescale=1.0, postscale=1.0):
    def oracle(leaves):
        results = [postscale * COMBINE[op](prescale * torch.stack(parts)) for parts in zip(*leaves)]
        return [results] * len(leaves)

    return oracle


def with_ties_and_zeros(rank):
    """Values that are equal on all ranks, on some, on none; zeros on no rank, one, two, all."""
    mine = value(rank, DOUBLE, (12,))
    mine[:2] = torch.tensor([0.5, -2.0], dtype=DOUBLE)
    mine[2:4] = float(rank % 2)
    mine[4], mine[5], mine[6] = 0.0, float(rank > 0), -float(rank > 1)
    return [mine]


def all_reduces():
    for op, factors in itertools.product(COMBINE, [(1.0, 1.0), (0.5, 3.0), (-2.0, 1.5)]):
        name, scales = f"d{op}{factors}", {"prescale_factor": factors[0], "postscale_factor": factors[1]}
        agree(
            with_ties_and_zeros,
            lambda mine, op=op, name=name, scales=scales: [hvd.allreduce(mine[0], op=op, name=name, **scales)],
            reduced(op, *factors),
        )


def all_reduces_of_other_types_and_of_sets():
    for dtype, op in itertools.product([torch.float32, torch.bfloat16, torch.float16], COMBINE):
        agree(
            lambda rank, dtype=dtype: [(value(rank, DOUBLE, (5, 2)) + 3).to(dtype)],
            lambda mine, op=op: [hvd.allreduce(mine[0], op=op)],
            reduced(op),
            tolerance=3e-2 if dtype.itemsize == 2 else 1e-5,
        )
    for op in (hvd.Sum, hvd.Product):
        agree(
            lambda rank: [torch.complex(value(rank, DOUBLE, (4,)), value(rank, DOUBLE, (4,), 9))],
            lambda mine, op=op: [hvd.allreduce(mine[0], op=op)],
            reduced(op),
        )
    pair = hvd.add_process_set([0, 2])
    for op in COMBINE:
        agree(
            with_ties_and_zeros,
            lambda mine, op=op: [hvd.allreduce(mine[0], op=op, process_set=pair, name=f"of the set {op}")],
            reduced(op),
            [0, 2],
        )
    hvd.remove_process_set(pair)


def all_reduces_of_units():
    shapes = [(3,), (), (0, 2), (2, 5)]
    for op in COMBINE:
        agree(
            lambda rank: [value(rank, DOUBLE, shape, i) for i, shape in enumerate(shapes)],
            lambda mine, op=op: hvd.grouped_allreduce(mine, op=op, name=f"unit {op}", postscale_factor=2.0),
            reduced(op, 1.0, 2.0),
        )


def a_unit_may_have_integers():
    for op in (hvd.Max, hvd.Product):
        mine = torch.tensor([2.0 + hvd.rank()], requires_grad=True)
        found = hvd.grouped_allreduce([mine, torch.tensor([3])], op=op)
        found[0].sum().backward()
        others = [2.0 + rank for rank in range(hvd.size()) if rank != hvd.rank()]
        expected = math.prod(others) if op == hvd.Product else float(hvd.rank() == hvd.size() - 1)
        assert mine.grad.item() == hvd.size() * expected, mine.grad


def converted_tensors_too():
    """A cast around the collective is a part of the derivative."""
    agree(
        lambda rank: [value(rank, torch.float32, (6,))],
        lambda mine: [hvd.allreduce(mine[0], op=hvd.Max, compression=hvd.Compression.fp16)],
        lambda leaves: reduced(hvd.Max)([[leaf.to(torch.float16).double() for leaf in part] for part in leaves]),
        tolerance=2e-3,
    )


def a_nan_is_the_extreme():
    mine = torch.tensor([1.0, math.nan, math.nan if hvd.rank() == 1 else 2.0], requires_grad=True)
    hvd.allreduce(mine, op=hvd.Max).sum().backward()
    assert torch.equal(mine.grad, torch.tensor([1.0, 1.0, 3.0 * (hvd.rank() == 1)])), mine.grad


def operations_without_a_derivative_say_so():
    mine = value(hvd.rank(), DOUBLE, (4,)).requires_grad_()
    first = hvd.register_op("first", lambda accumulator, value: None)
    for op, said in ((hvd.Adasum, "op=Adasum"), (first, "CustomOp('first')")):
        for result in (hvd.allreduce(mine, op=op), hvd.grouped_allreduce([mine, mine + 1], op=op)[1]):
            with raises(NotImplementedError, said, "not defined", "Average"):
                result.sum().backward()
    for op, said in ((hvd.Product, "op=Product"), (hvd.Max, "op=Max")):
        (first,) = torch.autograd.grad(hvd.allreduce(mine, op=op).sum(), mine, create_graph=True)
        with raises(NotImplementedError, said, "second derivative"):
            (first.sum() + mine.sum()).backward()
    first = torch.autograd.grad(hvd.allreduce(mine * mine, op=hvd.Sum).sum(), mine, create_graph=True)
    second = torch.autograd.grad(first[0].sum(), mine)
    assert torch.allclose(second[0], torch.full_like(mine, 2.0 * hvd.size()))
    assert hvd.allreduce(mine.detach(), op=hvd.Adasum).shape == (4,)


def rows_of(rank):
    return [value(rank, DOUBLE, (rank + 1, 2)), value(rank, DOUBLE, ((rank * 2) % 3, 3), 1)]


def gathered(leaves):
    results = [torch.cat(parts) for parts in zip(*leaves)]
    return [results] * len(leaves)


def all_gathers():
    size = hvd.size()
    agree(lambda rank: rows_of(rank)[:1], lambda mine: [hvd.allgather(mine[0], name="rows")], gathered)
    agree(rows_of, lambda mine: hvd.grouped_allgather(mine, name="unit of rows"), gathered)
    agree(lambda rank: [rows_of(rank)[0].float()], lambda mine: [hvd.allgather(mine[0])], gathered, tolerance=1e-5)
    agree(rows_of, lambda mine: [horovod.allgather(each) for each in mine], gathered, scale=1 / size)
    agree(rows_of, lambda mine: horovod.grouped_allgather(mine), gathered, scale=1 / size)
    pair = hvd.add_process_set([1, 2])
    agree(rows_of, lambda mine: [hvd.allgather(each, process_set=pair) for each in mine], gathered, [1, 2])
    hvd.remove_process_set(pair)


def broadcasts():
    for call, scale in ((hvd.broadcast, 1.0), (horovod.broadcast, 1 / hvd.size())):
        agree(
            lambda rank: [value(rank, DOUBLE, (4,))],
            lambda mine, call=call: [call(mine[0], 1, name="from 1")],
            lambda leaves: [leaves[1]] * len(leaves),
            scale=scale,
        )


def all_to_alls():
    splits = [[(rank + 2 * to) % 3 for to in range(hvd.size())] for rank in range(hvd.size())]

    def oracle(leaves):
        parts = [leaf[0][: sum(split)].split(split) for leaf, split in zip(leaves, splits)]
        return [[torch.cat([part[to] for part in parts])] for to in range(len(leaves))]

    for given in (list, torch.tensor):
        agree(
            lambda rank: [value(rank, DOUBLE, (sum(splits[rank]) + 1, 2))],
            lambda mine, given=given: [hvd.alltoall(mine[0], given(splits[hvd.rank()]))[0]],
            oracle,
        )


def reduce_scatters():
    size, rows = hvd.size(), hvd.size() + 1
    for op, factors, grouped in itertools.product([hvd.Sum, hvd.Average], [(1.0, 1.0), (0.5, 3.0)], [False, True]):

        def oracle(leaves, op=op, factors=factors):
            totals = reduced(op, *factors)(leaves)[0]
            counts = [rows // size + (rank < rows % size) for rank in range(size)]
            return [[total.split(counts)[rank] for total in totals] for rank in range(size)]

        def scattered(mine, module=hvd, op=op, factors=factors, grouped=grouped):
            options = {"op": op, "prescale_factor": factors[0], "postscale_factor": factors[1]}
            if grouped:
                return module.grouped_reducescatter(mine, **options)
            return [module.reducescatter(each, **options) for each in mine]

        tensors = [lambda rank: [value(rank, DOUBLE, (rows, 3)), value(rank, DOUBLE, (rows,), 1)]]
        agree(*tensors, scattered, oracle)
        agree(*tensors, lambda mine, call=scattered: call(mine, horovod), oracle, scale=size)


def a_loss_of_all_features_trains_as_one_process():
    """The mean of the ranks' losses, each of them of the features of all ranks, is the loss of one process."""
    batches = [value(rank, DOUBLE, (4 + rank, 3), 7) for rank in range(hvd.size())]

    def contrastive(features):
        return torch.logsumexp(features @ features.t(), 1).mean()

    alone = torch.nn.Linear(3, 2).double()
    model = torch.nn.Linear(3, 2).double()
    model.load_state_dict(alone.state_dict())
    contrastive(alone(torch.cat(batches))).backward()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    contrastive(hvd.allgather(model(batches[hvd.rank()]))).backward()
    assert optimizer.param_groups[0]["lr"] == 0.1
    for mine, expected in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(mine.grad, expected.grad, 1e-12), f"{mine.grad}, expected {expected.grad}"


def ranks_that_have_joined_have_no_part():
    if hvd.rank() == 0:
        return hvd.join()
    mine = value(hvd.rank(), DOUBLE, (5,)).requires_grad_()
    others = [value(rank, DOUBLE, (5,)).requires_grad_() for rank in range(1, hvd.size())]
    for op in (hvd.Max, hvd.Product, hvd.Sum):
        hvd.allreduce(mine, op=op, name=f"joined {op}").sum().backward()
        total = COMBINE[op](torch.stack(others)).sum() * len(others)
        (expected,) = torch.autograd.grad(total, others[hvd.rank() - 1])
        assert torch.allclose(mine.grad, expected), f"{mine.grad}, expected {expected}"
        mine.grad = None
    return hvd.join()


CLAIMS = [
    all_reduces,
    all_reduces_of_other_types_and_of_sets,
    all_reduces_of_units,
    a_unit_may_have_integers,
    converted_tensors_too,
    a_nan_is_the_extreme,
    operations_without_a_derivative_say_so,
    all_gathers,
    broadcasts,
    all_to_alls,
    reduce_scatters,
    a_loss_of_all_features_trains_as_one_process,
    ranks_that_have_joined_have_no_part,
]
