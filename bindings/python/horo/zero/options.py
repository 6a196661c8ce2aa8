"""The arguments of DistributedOptimizer, checked."""

import torch

import horo
import horo.torch as hvd

_NAMES = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta")
ELEMENTWISE = tuple(getattr(torch.optim, name) for name in _NAMES)


def stays_whole(optimizer, partition):
    """Whether no parameter is divided. partition: see DistributedOptimizer."""
    kind = type(optimizer)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "horo.zero: LBFGS reads all parameters at once and calls its closure many times; use another one"
        )
    is_known = kind in ELEMENTWISE or getattr(kind, "horo_elementwise", False)
    if partition not in (None, "blocks", "tensors"):
        raise ValueError(f"horo.zero: partition={partition!r}; expected 'blocks', 'tensors' or None")
    if partition == "blocks" and not is_known:
        raise ValueError(
            f"horo.zero: partition='blocks' and {kind.__name__}, which may need whole parameters; expected 'tensors', "
            f"or {kind.__name__}.horo_elementwise = True if its step() updates each element by itself"
        )
    return partition == "tensors" or not is_known


def check(name, given, redundancy):
    """Raises ValueError for an option of hvd.DistributedOptimizer that excludes a divided step(), or for no number of
    copies."""
    if redundancy not in ((None, 0, 1) if horo.is_elastic() else (None, 0)):
        raise ValueError(
            f"horo.zero: redundancy={redundancy!r}; expected 0 or 1 in an elastic job, and 0 in others, which a lost "
            "rank ends"
        )
    if given.get("op") == hvd.Adasum:
        raise ValueError(f"horo.zero: op=Adasum and {name}: it reduces changes of whole parameters; use Average or Sum")
    if given.get("cross_barrier"):
        raise ValueError(f"horo.zero: cross_barrier=True and {name}: step() gathers parameters; leave it out")
