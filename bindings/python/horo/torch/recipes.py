"""What scripts of Horovod's examples bring along: averages of metrics over ranks, and the learning rate of large
batches."""

import collections.abc

import torch

from horo._sets import global_process_set
from horo._specs import Adasum, Average, Sum
from horo.torch.autograd import allreduce


def metric_average(value, name=None, weight=1, process_set=global_process_set):
    """The mean of a number over ranks, or of each number of a mapping; weighted by `weight`, as with the number of
    examples that this rank has seen. A float, or a dict of the same keys. All ranks have the same keys in the same
    order. ZeroDivisionError if the weights of all ranks are 0."""
    is_mapping = isinstance(value, collections.abc.Mapping)
    numbers = list(value.values()) if is_mapping else [value]
    # A rank that has seen nothing may have nan as its mean.
    parts = [float(number) * weight if weight else 0.0 for number in numbers]
    name = "metric_average" if name is None else name
    sums = allreduce(torch.tensor([*parts, weight], dtype=torch.float64), name=name, op=Sum, process_set=process_set)
    *parts, total = sums.tolist()
    means = [part / total for part in parts]
    return dict(zip(value, means)) if is_mapping else means[0]


def lr_scale(op=Average, backward_passes_per_step=1, process_set=global_process_set):
    """The factor for the learning rate of one process with one batch: the number of batches of a step. With Adasum
    those of one rank, whose step is as long as the common one."""
    ranks = 1 if op == Adasum else process_set.size()
    return ranks * backward_passes_per_step


class Warmup:
    """A factor for torch.optim.lr_scheduler.LambdaLR, whose step() is called after each batch: it rises linearly, by
    batch, from 1 / scale to 1 during the first epochs. The optimizer has the scaled learning rate."""

    def __init__(self, epochs, batches_per_epoch, scale=None):
        """scale: lr_scale() if it is None."""
        if epochs < 0 or batches_per_epoch < 1:
            raise ValueError(f"Warmup({epochs}, {batches_per_epoch}): expected epochs >= 0, batches per epoch >= 1")
        self.batches = epochs * batches_per_epoch
        self.scale = lr_scale() if scale is None else scale
        if self.scale <= 0:
            raise ValueError(f"Warmup: scale={scale}: expected a number above 0")

    def __call__(self, batch):
        if batch >= self.batches:
            return 1.0
        return (1 + batch / self.batches * (self.scale - 1)) / self.scale
