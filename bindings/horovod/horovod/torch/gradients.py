"""The collectives whose derivatives in Horovod are others than in horo.torch, with Horovod's derivatives.

There the gradient of an allgather and of a broadcast is the average over ranks in place of the sum, and that of a
reducescatter is multiplied by the size of the process set.
"""

import os
import sys

from horo._checks import factors_of
from horo._compression import all_converted, converted
from horo._sets import global_process_set
from horo._specs import Average, choose_op
from horo.torch.autograd import AllGather, Broadcast, GroupedAllGather, GroupedReduceScatter, ReduceScatter
from horo.torch.compression import Compression
from horo.torch.tracing import hide


def allgather(tensor, name=None, process_set=global_process_set):
    """See horo.torch.allgather. Horovod's derivative: the average over ranks, this rank's rows."""
    return AllGather.apply(tensor, name, process_set, Average)


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """See horo.torch.grouped_allgather. The derivative is that of allgather."""
    return list(GroupedAllGather.apply(name, process_set, Average, *tensors))


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """See horo.torch.broadcast. Horovod's derivative: the average over ranks, at the root."""
    return Broadcast.apply(tensor, root_rank, name, (process_set, Average))


def reducescatter(
    tensor,
    name=None,
    compression=Compression.none,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """See horo.torch.reducescatter. Horovod's derivative: an allgather, times the size for a sum."""
    options = (choose_op(op), process_set, *factors_of(prescale_factor, postscale_factor))

    def scattered(tensor):
        return ReduceScatter.apply(tensor, name, options, True)

    return converted(compression, tensor, "reducescatter", scattered)


def grouped_reducescatter(
    tensors,
    name=None,
    compression=Compression.none,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """See horo.torch.grouped_reducescatter. The derivative is that of reducescatter."""
    options = (choose_op(op), process_set, *factors_of(prescale_factor, postscale_factor))

    def scattered(tensors):
        return GroupedReduceScatter.apply(name, options, True, *tensors)

    return all_converted(compression, tensors, "grouped_reducescatter", scattered)


hide(sys.modules[__name__], os.path.dirname(os.path.abspath(__file__)) + os.sep)
