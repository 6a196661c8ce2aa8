"""horo.zero.DistributedOptimizer: hvd.DistributedOptimizer whose ranks divide step() and the optimizer's state.

The class of the user's optimizer becomes a subclass whose step() updates pieces of parameters, and then
hvd.DistributedOptimizer wraps it. Gradients stay whole and reduced, so all that a script does between backward() and
step() is as under plain horo, and so are the bits.
"""

import collections.abc
import functools
import inspect

import torch

import horo
import horo.torch as hvd
from horo.zero.divided import Divided
from horo.zero.division import Division
from horo.zero.elastic import ElasticDivision

_NAMES = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta")
ELEMENTWISE = tuple(getattr(torch.optim, name) for name in _NAMES)


def DistributedOptimizer(
    optimizer, named_parameters=None, *args, partition=None, redundancy=None, masters=False, **options
):
    """hvd.DistributedOptimizer, whose other arguments it takes, with the state of the optimizer divided among the
    ranks of process_set: each updates its part of the parameters, and gathers the others. The same bits.

    partition: "blocks": parameters are cut at multiples of 256 elements, for optimizers that update each element by
    itself. "tensors": parameters stay whole, for all others. None: "blocks" for the classes of torch.optim of which
    that is known, and those with the attribute horo_elementwise. masters: each rank keeps float32 copies of its part
    of bfloat16 and float16 parameters, and updates these. redundancy: 1, the default in an elastic job: each rank has
    the state of another rank's part, too, so that the death of any rank loses nothing; 0: it does not."""
    name = type(optimizer).__name__
    if isinstance(optimizer, Divided):
        raise ValueError(f"this {name} is a horo.zero.DistributedOptimizer already")
    if not isinstance(optimizer, torch.optim.Optimizer):
        return hvd.DistributedOptimizer(optimizer, named_parameters, *args, **options)  # refuses it
    is_iterator = isinstance(named_parameters, collections.abc.Iterator)  # it gives its values once
    named = list(named_parameters) if is_iterator else named_parameters
    given = inspect.signature(hvd.DistributedOptimizer).bind(optimizer, named, *args, **options).arguments
    is_whole = _stays_whole(optimizer, partition)
    _check(name, given, redundancy)
    names = _names_of(optimizer, named)
    plain, user = type(optimizer), type(optimizer).step
    body = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    body["_zero_step"] = staticmethod(user.__wrapped__ if getattr(user, "hooked", False) else user)
    body["load_state_dict"] = Divided.load_state_dict  # of a class of its own: all ranks call it for a broadcast
    optimizer.__class__ = type(plain.__name__, (Divided, plain), body)
    made = Division
    if horo.is_elastic():
        made = functools.partial(ElasticDivision, has_copies=redundancy != 0)
    optimizer.divide(made(name, given.get("process_set", hvd.global_process_set), names, is_whole, masters))
    try:
        return hvd.DistributedOptimizer(optimizer, named, *args, **options)
    except BaseException:
        optimizer.__class__ = plain
        raise


def _names_of(optimizer, named):
    """{parameter: its name}. hvd.DistributedOptimizer refuses what has another form."""
    if named is None:
        params = [param for group in optimizer.param_groups for param in group["params"]]
        return {param: f"parameter {i}" for i, param in enumerate(params)}
    pairs = named.items() if isinstance(named, dict) else named if isinstance(named, collections.abc.Iterable) else ()
    pairs = [pair for pair in pairs if isinstance(pair, tuple) and len(pair) == 2]
    return {param: str(name) for name, param in pairs if isinstance(param, torch.Tensor)}


def _stays_whole(optimizer, partition):
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


def _check(name, given, redundancy):
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
