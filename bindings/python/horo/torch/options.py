"""The arguments of DistributedOptimizer: checks, and what follows from them."""

import collections
import math

from horo._native import ALL_REDUCE
from horo._specs import Average, Spec, op_fields


def check_passes(passes):
    if not isinstance(passes, int) or passes <= 0:
        raise ValueError(f"backward_passes_per_step={passes!r}; expected a number of at least 1")


def check_predivide(factor, op):
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if factor == 0 or not math.isfinite(factor) or not math.isfinite(1.0 / factor):
        raise ValueError(
            f"gradient_predivide_factor={factor!r}; expected a number by which gradients can be divided and multiplied"
        )


def common_spec(op, order, factor):
    """The Spec of all gradients. They are divided by the factor before the reduction, and the result is multiplied by
    it."""
    op, custom = op_fields(op)
    fields = {"order": order, "stepwise": 1, "prescale": 1.0 / factor, "postscale": factor, "custom_op": custom}
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
