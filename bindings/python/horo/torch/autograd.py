"""The differentiable collectives. They return a new tensor. The gradient at a rank's tensor is that of the sum of the
losses of all ranks: an optimizer that averages gradients then follows the mean of the losses.

The name of a backward collective is derived from its forward's name, if it has one, so that ranks with different graphs
still match.
"""

import torch

from horo import _default
from horo._arguments import rank_number
from horo._changes import held
from horo._checks import factors_of, numbers_of
from horo._compression import all_converted, all_through, converted, through
from horo._handles import synchronize
from horo._sets import check, global_process_set
from horo._specs import Average, Sum, choose_op, op_name
from horo.torch import derivatives, ops
from horo.torch.compression import Compression


def _backward_name(name):
    return None if name is None else f"{name}.backward"


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, options, more):
        ctx.name, ctx.options, ctx.more = _backward_name(name), options, more
        return synchronize(ops.allreduce_async(tensor, None, name, *options, **more))

    @staticmethod
    def backward(ctx, gradient):
        return _AllReduce.apply(gradient, ctx.name, ctx.options, ctx.more), None, None, None


class _NonlinearAllReduce(torch.autograd.Function):
    """allreduces whose derivative depends on the values, or that have none. Several tensors are one unit."""

    @staticmethod
    def forward(ctx, name, options, more, *tensors):
        ctx.call = (*options, _backward_name(name))
        if len(tensors) == 1:
            results = (synchronize(ops.allreduce_async(tensors[0], None, name, *options, **more)),)
        else:
            results = tuple(synchronize(ops.grouped_allreduce_async(tensors, None, name, *options, **more)))
        if derivatives.needs_values(options[0]):
            ctx.save_for_backward(*tensors, *results)
        return results

    @staticmethod
    def backward(ctx, *gradients):
        op, saved, count = ctx.call[0], ctx.saved_tensors, len(gradients)
        derivatives.check(op)
        with torch.no_grad():
            found = derivatives.of_values(ctx.call, saved[:count], saved[count:], gradients)
        what = f"an allreduce with op={op_name(op)}"
        return None, None, None, *derivatives.once(what, found, (*saved[:count], *gradients))


def allreduce(
    tensor,
    average=None,
    name=None,
    compression=Compression.none,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
    *,
    order="canonical",
):
    """postscale * op over ranks of (prescale * tensor), as a new tensor. The op is Average by default."""
    options = (choose_op(op, average), *factors_of(prescale_factor, postscale_factor), process_set)

    def reduced(tensor, compression):
        more = {"order": order, "compression": compression}
        if derivatives.is_linear(options[0]):
            return _AllReduce.apply(tensor, name, options, more)
        (result,) = _NonlinearAllReduce.apply(name, options, more, tensor)
        return result

    return through(compression, tensor, reduced, options[0])


class _GroupedAllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, options, more, *tensors):
        ctx.name, ctx.options, ctx.more = _backward_name(name), options, more
        return tuple(synchronize(ops.grouped_allreduce_async(tensors, None, name, *options, **more)))

    @staticmethod
    def backward(ctx, *gradients):
        return None, None, None, *_GroupedAllReduce.apply(ctx.name, ctx.options, ctx.more, *gradients)


def grouped_allreduce(
    tensors,
    average=None,
    name=None,
    compression=Compression.none,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
    *,
    order="canonical",
):
    """allreduce of several tensors as one unit: all of them are reduced, or all fail."""
    options = (choose_op(op, average), *factors_of(prescale_factor, postscale_factor), process_set)

    def reduced(tensors, compression):
        function = _GroupedAllReduce if derivatives.is_linear(options[0]) else _NonlinearAllReduce
        return list(function.apply(name, options, {"order": order, "compression": compression}, *tensors))

    return all_through(compression, tensors, reduced, options[0])


def _my_part(reduced, rows, mine):
    """This rank's rows of the reduced gradient of an allgather. mine: its number in the set when it gathered."""
    return reduced.narrow(0, sum(rows[:mine]), rows[mine])


class AllGather(torch.autograd.Function):
    """op: the reduction of the ranks' gradients: Sum, or Average as in Horovod."""

    @staticmethod
    def forward(ctx, tensor, name, process_set, op):
        with held:  # functions of on_change() may see further changes
            gathered, rows = synchronize(ops.allgather_async(tensor, name, process_set, with_rows=True))
            ctx.name, ctx.rows, ctx.mine, ctx.process_set = _backward_name(name), rows, process_set.rank(), process_set
        ctx.op = op
        return gathered

    @staticmethod
    def backward(ctx, gradient):
        reduced = allreduce(gradient, name=ctx.name, op=ctx.op, process_set=ctx.process_set)
        return _my_part(reduced, ctx.rows, ctx.mine), None, None, None


def allgather(tensor, name=None, process_set=global_process_set):
    """All ranks' tensors, concatenated along the first dimension. Only the first dimensions may differ."""
    return AllGather.apply(tensor, name, process_set, Sum)


class GroupedAllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, op, *tensors):
        with held:
            received = synchronize(ops.grouped_allgather_async(tensors, name, process_set, with_rows=True))
            ctx.name, ctx.rows = _backward_name(name), [rows for _, rows in received]
            ctx.mine, ctx.process_set = process_set.rank(), process_set
        ctx.op = op
        return tuple(gathered for gathered, _ in received)

    @staticmethod
    def backward(ctx, *gradients):
        reduced = grouped_allreduce(gradients, name=ctx.name, op=ctx.op, process_set=ctx.process_set)
        return None, None, None, *(_my_part(part, rows, ctx.mine) for part, rows in zip(reduced, ctx.rows))


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """allgather of several tensors as one unit: all of them are gathered, or all fail."""
    return list(GroupedAllGather.apply(name, process_set, Sum, *tensors))


class Broadcast(torch.autograd.Function):
    """options: the process set, and op of AllGather."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, options):
        process_set, ctx.op = options
        ctx.is_root = _default.rank() == rank_number(root_rank, "root_rank")
        ctx.name, ctx.process_set = _backward_name(name), process_set
        return synchronize(ops.broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, gradient):
        reduced = allreduce(gradient, name=ctx.name, op=ctx.op, process_set=ctx.process_set)
        return reduced if ctx.is_root else torch.zeros_like(reduced), None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """root_rank's tensor, on every rank, as a new tensor."""
    return Broadcast.apply(tensor, root_rank, name, (process_set, Sum))


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        received, rows = synchronize(ops.alltoall_async(tensor, splits, name, process_set, with_rows=True))
        ctx.name, ctx.process_set, ctx.rows = _backward_name(name), process_set, rows
        ctx.rest = 0 if splits is None else tensor.shape[0] - int(sum(splits))
        ctx.mark_non_differentiable(rows)
        return received, rows

    @staticmethod
    def backward(ctx, gradient, _):
        returned, _ = _AllToAll.apply(gradient, ctx.rows, ctx.name, ctx.process_set)
        if ctx.rest:  # rows that were not sent to any member
            returned = torch.cat([returned, returned.new_zeros(ctx.rest, *returned.shape[1:])])
        return returned, None, None, None


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """splits[i] rows of the tensor, in their order, go to member i; the result is the received rows, by member.

    Without splits every member gets the same number of rows. With splits the result is a pair: the tensor, and the
    number of rows from each member (int32)."""
    splits = None if splits is None else numbers_of(splits, "alltoall")
    received, rows = _AllToAll.apply(tensor, splits, name, process_set)
    return received if splits is None else (received, rows)


def _scattered_back(gradient, factors):
    """The gradient of the rows of a reducescatter with respect to the rows of each rank. factors: see _factors."""
    scale, divisor = factors
    scaled = gradient if scale == 1 else gradient * scale
    return scaled if divisor == 1 else scaled / divisor


def _factors(options, as_horovod):
    """What a gradient is multiplied and divided by. In Horovod it is not divided for Average, and multiplied by the
    size for Sum."""
    op, process_set, prescale, postscale = options
    check(process_set)
    size = process_set.members()
    if as_horovod:
        return prescale * postscale * (size if op == Sum else 1), 1
    return prescale * postscale, size if op == Average else 1


class ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, options, as_horovod):
        ctx.factors = _factors(options, as_horovod)
        scattered = synchronize(ops.reducescatter_async(tensor, name, *options))
        ctx.name, ctx.process_set = _backward_name(name), options[1]
        return scattered

    @staticmethod
    def backward(ctx, gradient):
        back = _scattered_back(gradient, ctx.factors)
        return allgather(back, ctx.name, ctx.process_set), None, None, None


def reducescatter(
    tensor,
    name=None,
    compression=Compression.none,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """This rank's rows of the reduction over ranks; the first rows % size ranks get one row more. Average or Sum."""
    options = (choose_op(op), process_set, *factors_of(prescale_factor, postscale_factor))

    def scattered(tensor):
        return ReduceScatter.apply(tensor, name, options, False)

    return converted(compression, tensor, "reducescatter", scattered)


class GroupedReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, options, as_horovod, *tensors):
        ctx.factors = _factors(options, as_horovod)
        scattered = synchronize(ops.grouped_reducescatter_async(tensors, name, *options))
        ctx.name, ctx.process_set = _backward_name(name), options[1]
        return tuple(scattered)

    @staticmethod
    def backward(ctx, *gradients):
        back = [_scattered_back(gradient, ctx.factors) for gradient in gradients]
        return None, None, None, *grouped_allgather(back, ctx.name, ctx.process_set)


def grouped_reducescatter(
    tensors,
    name=None,
    compression=Compression.none,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """reducescatter of several tensors as one unit: all of them are reduced, or all fail."""
    options = (choose_op(op), process_set, *factors_of(prescale_factor, postscale_factor))

    def scattered(tensors):
        return GroupedReduceScatter.apply(name, options, False, *tensors)

    return all_converted(compression, tensors, "grouped_reducescatter", scattered)
