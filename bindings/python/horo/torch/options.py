"""The arguments of DistributedOptimizer: checks, and what follows from them."""

import collections
import inspect
import math

import torch

from horo._arguments import factor, flag, whole
from horo._native import ALL_REDUCE
from horo._specs import Average, Spec, choose_op, op_fields

FLAGS = ("sparse_as_dense", "gradient_as_bucket_view", "cross_barrier")


def check_optimizer(optimizer):
    """Raises the reason if it cannot be wrapped."""
    if isinstance(optimizer, type) and issubclass(optimizer, torch.optim.Optimizer):
        what = f"the class {optimizer.__name__}: make an optimizer of it first, as in {optimizer.__name__}(params)"
    elif isinstance(optimizer, torch.nn.Module):
        what = (
            "a model. There is no wrapper of models: wrap its optimizer, as in DistributedOptimizer(SGD("
            "model.parameters(), lr=0.1), model.named_parameters()), and broadcast_parameters(model.state_dict(), 0)"
        )
    elif isinstance(optimizer, torch.optim.lr_scheduler.LRScheduler):
        what = "a scheduler: wrap the optimizer that it was made for"
    elif not (hasattr(optimizer, "param_groups") and hasattr(optimizer, "step")):
        what = f"a {type(optimizer).__name__}"
    else:
        return
    raise TypeError(f"DistributedOptimizer: expected a torch.optim.Optimizer, not {what}")


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
    if isinstance(named_parameters, torch.nn.Module) or inspect.ismethod(named_parameters):
        raise ValueError(
            f"named_parameters={type(named_parameters).__name__}: expected pairs (name, parameter), as "
            "model.named_parameters() returns them"
        )
    named = list(named_parameters.items() if isinstance(named_parameters, dict) else named_parameters)
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
    params = [param for group in optimizer.param_groups for param in group["params"]]
    unnamed = [param for param in params if id(param) not in names]
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named: "
            f"{len(unnamed)} of {len(params)}, the first of shape {list(unnamed[0].shape)}. "
            + _why_unnamed(named, params)
        )
    return names


def _why_unnamed(named, params):
    """The likely reason why parameters have no name."""
    if not named:
        return "named_parameters is empty: a generator gives its values once, so call model.named_parameters() anew"
    if {id(param) for param in params}.isdisjoint(id(param) for _, param in named):
        return (
            "It names other tensors, as of a copy of the model or its state_dict(): expected model.named_parameters()"
        )
    return "Name all parameters of the optimizer, also those of its other models"
