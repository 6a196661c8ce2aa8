"""The differentiable collectives. They return a new tensor; their gradients are those of Horovod.

The name of a backward collective is derived from its forward's name, if it has one, so that ranks with different graphs
still match.
"""

import torch

from horo import _default
from horo._changes import held
from horo._compression import all_converted, all_through, converted, through
from horo._handles import synchronize
from horo._sets import global_process_set
from horo._specs import Average, Sum, choose_op
from horo.torch import ops
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
    options = (choose_op(op, average), prescale_factor, postscale_factor, process_set)

    def reduced(tensor, compression):
        return _AllReduce.apply(tensor, name, options, {"order": order, "compression": compression})

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
    options = (choose_op(op, average), prescale_factor, postscale_factor, process_set)

    def reduced(tensors, compression):
        return list(_GroupedAllReduce.apply(name, options, {"order": order, "compression": compression}, *tensors))

    return all_through(compression, tensors, reduced, options[0])


def _my_part(averaged, rows, mine):
    """This rank's rows of the averaged gradient of an allgather. mine: its number in the set when it gathered."""
    return averaged.narrow(0, sum(rows[:mine]), rows[mine])


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):
        with held:  # functions of on_change() may see further changes
            gathered, rows = synchronize(ops.allgather_async(tensor, name, process_set, with_rows=True))
            ctx.name, ctx.rows, ctx.mine, ctx.process_set = _backward_name(name), rows, process_set.rank(), process_set
        return gathered

    @staticmethod
    def backward(ctx, gradient):
        averaged = allreduce(gradient, name=ctx.name, op=Average, process_set=ctx.process_set)
        return _my_part(averaged, ctx.rows, ctx.mine), None, None


def allgather(tensor, name=None, process_set=global_process_set):
    """All ranks' tensors, concatenated along the first dimension. Only the first dimensions may differ."""
    return _AllGather.apply(tensor, name, process_set)


class _GroupedAllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        with held:
            received = synchronize(ops.grouped_allgather_async(tensors, name, process_set, with_rows=True))
            ctx.name, ctx.rows = _backward_name(name), [rows for _, rows in received]
            ctx.mine, ctx.process_set = process_set.rank(), process_set
        return tuple(gathered for gathered, _ in received)

    @staticmethod
    def backward(ctx, *gradients):
        averaged = grouped_allreduce(gradients, name=ctx.name, op=Average, process_set=ctx.process_set)
        return None, None, *(_my_part(part, rows, ctx.mine) for part, rows in zip(averaged, ctx.rows))


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """allgather of several tensors as one unit: all of them are gathered, or all fail."""
    return list(_GroupedAllGather.apply(name, process_set, *tensors))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.name, ctx.is_root, ctx.process_set = _backward_name(name), _default.rank() == root_rank, process_set
        result = synchronize(ops.broadcast_async(tensor, root_rank, name, process_set))
        return result

    @staticmethod
    def backward(ctx, gradient):
        averaged = allreduce(gradient, name=ctx.name, op=Average, process_set=ctx.process_set)
        return averaged if ctx.is_root else torch.zeros_like(averaged), None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """root_rank's tensor, on every rank, as a new tensor."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


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
    received, rows = _AllToAll.apply(tensor, splits, name, process_set)
    return received if splits is None else (received, rows)


def _rows_factor(options):
    """The factor of a reducescatter's gradient: the scale of the reduction relative to the average, as in Horovod."""
    op, process_set, prescale, postscale = options
    return prescale * postscale * (process_set.size() if op == Sum else 1)


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, options):
        scattered = synchronize(ops.reducescatter_async(tensor, name, *options))
        ctx.name, ctx.factor, ctx.process_set = _backward_name(name), _rows_factor(options), options[1]
        return scattered

    @staticmethod
    def backward(ctx, gradient):
        scaled = gradient if ctx.factor == 1 else gradient * ctx.factor
        return allgather(scaled, ctx.name, ctx.process_set), None, None


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
    options = (op, process_set, prescale_factor, postscale_factor)

    def scattered(tensor):
        return _ReduceScatter.apply(tensor, name, options)

    return converted(compression, tensor, "reducescatter", scattered)


class _GroupedReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, options, *tensors):
        scattered = synchronize(ops.grouped_reducescatter_async(tensors, name, *options))
        ctx.name, ctx.factor, ctx.process_set = _backward_name(name), _rows_factor(options), options[1]
        return tuple(scattered)

    @staticmethod
    def backward(ctx, *gradients):
        scaled = gradients if ctx.factor == 1 else [gradient * ctx.factor for gradient in gradients]
        return None, None, *grouped_allgather(scaled, ctx.name, ctx.process_set)


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
    options = (op, process_set, prescale_factor, postscale_factor)

    def scattered(tensors):
        return _GroupedReduceScatter.apply(name, options, *tensors)

    return all_converted(compression, tensors, "grouped_reducescatter", scattered)
