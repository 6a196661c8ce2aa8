"""What scripts of Horovod's examples bring along: averages of metrics over ranks, and the learning rate of large
batches."""

import collections.abc
import hashlib
import re

import torch

from horo._arguments import whole
from horo._sets import check, global_process_set
from horo._specs import Adasum, Average, BitOr, Sum, choose_op
from horo.errors import Mismatch
from horo.torch.autograd import allreduce
from horo.torch.functions import allgather_object

_ADDRESS = re.compile(r"\b0x[0-9a-f]{4,}\b")


def metric_average(value, name=None, weight=1, process_set=global_process_set):
    """The mean of a number over ranks, or of each number of a mapping; weighted by `weight`, as with the number of
    examples that this rank has seen. A float, or a dict in the order of this rank's mapping. All ranks have the same
    keys, in any order; else a Mismatch on all of them says which rank has which. ZeroDivisionError if the weights of
    all ranks are 0."""
    name = "metric_average" if name is None else name
    is_mapping = isinstance(value, collections.abc.Mapping)
    keys, without_label = list(value) if is_mapping else [], None
    try:
        keys.sort(key=_label)
        labels = [_label(key) for key in keys] if is_mapping else None
    except TypeError as error:  # the other ranks are told, too
        labels, without_label = ["object a key without a text"], error
    try:
        _check_keys(labels, name, process_set)
    finally:
        if without_label is not None:
            raise without_label
    # A rank that has seen nothing may have nan as its mean.
    numbers = [value[key] for key in keys] if is_mapping else [value]
    parts = [float(number) * weight if weight else 0.0 for number in numbers]
    mine = torch.tensor([*parts, weight], dtype=torch.float64, device="cpu")
    sums = allreduce(mine, name=name, op=Sum, process_set=process_set)
    *parts, total = sums.tolist()
    means = [part / total for part in parts]
    if not is_mapping:
        return means[0]
    by_key = dict(zip(keys, means))
    return {key: by_key[key] for key in value}


def _label(key):
    """A key as a text that is equal on all ranks, and different for different keys."""
    if isinstance(key, (tuple, frozenset)):
        parts = [_label(each) for each in key]
        return f"{type(key).__name__} ({', '.join(parts if isinstance(key, tuple) else sorted(parts))})"
    if not isinstance(key, str) and _ADDRESS.search(repr(key)):
        raise TypeError(
            f"metric_average: the key {key!r} has no text that is equal on all ranks, as it tells an address; expected "
            "keys such as strings, numbers or tuples of them"
        )
    return f"{type(key).__name__} {key!r}"


def _check_keys(labels, name, process_set):
    """Raises Mismatch on all ranks if they do not have the same keys. labels: sorted; None: a number, no mapping.

    A bit that is set both in the union of all digests and in that of their complements differs between ranks."""
    digest = hashlib.sha256(repr(labels).encode(errors="backslashreplace")).digest()
    mine = torch.tensor([int.from_bytes(digest[:8], "little", signed=True)], device="cpu")
    union = allreduce(torch.cat([mine, ~mine]), name=f"{name}.keys", op=BitOr, process_set=process_set)
    if union[0] == ~union[1]:
        return
    rows = allgather_object(labels, name=f"{name}.keys.differ", process_set=process_set)
    has = {}
    for place, row in enumerate(rows):
        has.setdefault("a number" if row is None else f"the keys {_listed(row)}", []).append(place)
    ranks = process_set.ranks
    sayings = [f"{said} on rank {', '.join(str(ranks[place]) for place in places)}" for said, places in has.items()]
    raise Mismatch(f"metric_average: ranks have different metrics: {'; '.join(sayings)}. Give it the same keys on all")


def _listed(labels):
    keys = [label.partition(" ")[2] for label in labels]
    return ", ".join(keys[:8]) + ", ..." * (len(keys) > 8) if keys else "of an empty mapping"


def lr_scale(op=Average, backward_passes_per_step=1, process_set=global_process_set):
    """The factor for the learning rate of one process with one batch: the number of batches of a step. With Adasum
    those of one rank, whose step is as long as the common one."""
    check(process_set)
    passes = whole(backward_passes_per_step, "backward_passes_per_step", "a number of at least 1", 1)
    ranks = 1 if choose_op(op) == Adasum else process_set.size()
    return ranks * passes


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
