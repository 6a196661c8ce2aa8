"""The arguments of DistributedOptimizer: checks, and what follows from them."""

import collections
import math

from horo._arguments import factor, flag, whole
from horo._native import ALL_REDUCE
from horo._specs import Average, Spec, choose_op, op_fields

FLAGS = ("sparse_as_dense", "gradient_as_bucket_view", "cross_barrier")


def checked(options):
    """The arguments of DistributedOptimizer with the values that horo uses. Raises ValueError for one that is none."""
    flags = {name: flag(options[name], name) for name in FLAGS}
    predivide = factor(options["gradient_predivide_factor"], "gradient_predivide_factor")
    op, passes = choose_op(options["op"]), passes_of(options["backward_passes_per_step"])
    _check_predivide(predivide, op)
    return options | flags | {"gradient_predivide_factor": predivide, "op": op, "backward_passes_per_step": passes}


def passes_of(passes):
    return whole(passes, "backward_passes_per_step", "a number of at least 1", 1)


def _check_predivide(predivide, op):
    if predivide != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if predivide == 0 or not math.isfinite(predivide) or not math.isfinite(1.0 / predivide):
        raise ValueError(
            f"gradient_predivide_factor={predivide!r}; expected a number by which gradients can be divided and "
            "multiplied"
        )


def common_spec(op, order, predivide):
    """The Spec of all gradients. They are divided by a factor before the reduction, and the result is multiplied by
    it."""
    op, custom = op_fields(op)
    fields = {"order": order, "stepwise": 1, "prescale": 1.0 / predivide, "postscale": predivide, "custom_op": custom}
    return Spec(None, ALL_REDUCE, op, **fields)


def names_of(optimizer, named_parameters):
    """Returns (name, parameter) by the parameter's id. The parameter is part of it, because a later parameter can get
    the id of one that was freed. Empty if the caller gave no names."""
    if named_parameters is None:
        return {}
    named = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), "
            "usually produced by model.named_parameters()."
        )
    named = [(name if name is None else str(name), param) for name, param in named]
    twice = [name for name, count in collections.Counter(name for name, _ in named).items() if count > 1]
    if twice:
        raise ValueError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(map(str, twice))}"
        )
    names = {id(param): (name, param) for name, param in named}
    unnamed = [id(p) for group in optimizer.param_groups for p in group["params"] if id(p) not in names]
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Python object ids: {', '.join(map(str, unnamed))}"
        )
    return names
