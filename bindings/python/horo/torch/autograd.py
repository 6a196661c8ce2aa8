"""The collectives that return a new tensor, with gradients passing through them as in Horovod.

A backward collective carries its forward's name, where there is one, so that ranks whose graphs differ still match.
"""

import torch

from horo import _default
from horo.torch import compression as compressions
from horo.torch import ops
from horo.torch.compression import Compression
from horo.torch.ops import Average, Sum
from horo.torch.process_set import global_process_set


def _backward_name(name):
    return None if name is None else f"{name}.backward"


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, options, order):
        ctx.name, ctx.options, ctx.order = _backward_name(name), options, order
        return ops.synchronize(ops.allreduce_async(tensor, None, name, *options, order=order))

    @staticmethod
    def backward(ctx, gradient):
        return _AllReduce.apply(gradient, ctx.name, ctx.options, ctx.order), None, None, None


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
    """postscale * op over ranks of (prescale * tensor), as a new tensor. Average unless op says otherwise."""
    compressions.check(compression)
    options = (ops.choose_op(op, average), prescale_factor, postscale_factor, process_set)
    return _AllReduce.apply(tensor, name, options, order)


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):
        handle = ops.allgather_async(tensor, name, process_set)
        pending = ops.pending_of(handle)
        gathered = ops.synchronize(handle)
        rank = _default.rank()
        ctx.name, ctx.process_set = _backward_name(name), process_set
        ctx.begin, ctx.rows = sum(pending.rows[:rank]), pending.rows[rank]
        return gathered

    @staticmethod
    def backward(ctx, gradient):
        averaged = allreduce(gradient, name=ctx.name, op=Average, process_set=ctx.process_set)
        return averaged.narrow(0, ctx.begin, ctx.rows), None, None


def allgather(tensor, name=None, process_set=global_process_set):
    """All ranks' tensors, concatenated along the first dimension, in which they may differ."""
    return _AllGather.apply(tensor, name, process_set)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.name, ctx.root_rank, ctx.process_set = _backward_name(name), root_rank, process_set
        return ops.synchronize(ops.broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, gradient):
        averaged = allreduce(gradient, name=ctx.name, op=Average, process_set=ctx.process_set)
        is_root = _default.rank() == ctx.root_rank
        return averaged if is_root else torch.zeros_like(averaged), None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """root_rank's tensor, on every rank, as a new tensor."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, options):
        op, ctx.process_set, prescale, postscale = options
        ctx.name = _backward_name(name)
        ctx.factor = prescale * postscale * (_default.size() if op == Sum else 1)
        return ops.synchronize(ops.reducescatter_async(tensor, name, *options))

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
    """This rank's rows of the reduction over ranks; the first rows % size ranks have one row more. Average or Sum."""
    compressions.check(compression)
    return _ReduceScatter.apply(tensor, name, (op, process_set, prescale_factor, postscale_factor))
