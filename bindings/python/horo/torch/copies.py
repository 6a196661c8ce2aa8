"""Copies of a DistributedOptimizer."""

import copy

from horo.torch import streams


def _plain_class(optimizer):
    return type(optimizer).__mro__[2]  # after the derived class and the mixin


def _state_of(optimizer):
    """What the user's class pickles, without the attributes of the mixin."""
    getter = getattr(optimizer, "__getstate__", None)
    state = getter() if getter is not None else dict(vars(optimizer))
    return (
        {key: value for key, value in state.items() if not key.startswith("_horo_")}
        if isinstance(state, dict)
        else state
    )


def refuse_pickle(optimizer):
    raise TypeError(
        f"this {_plain_class(optimizer).__name__} is a DistributedOptimizer, which belongs to the ranks of this job: "
        "it cannot be pickled, or copied by copy.copy(); save optimizer.state_dict(), or use copy.deepcopy()"
    )


def deep_copy(optimizer, memo, wrap):
    """Copies the optimizer with its parameters. wrap: DistributedOptimizer."""
    plain = _plain_class(optimizer)
    result = plain.__new__(plain)
    memo[id(optimizer)] = result
    state = copy.deepcopy(_state_of(optimizer), memo)
    setter = getattr(result, "__setstate__", None)
    if setter is not None:
        setter(state)
    else:
        vars(result).update(state)
    copied = {id(old): new for old, new in zip(_params(optimizer), _params(result))}
    options = dict(optimizer._horo_options)
    groups = ([copied[id(param)] for param in group if id(param) in copied] for group in options["groups"])
    options["groups"] = [group for group in groups if group] or None
    options["num_groups"] = 0
    options["backward_passes_per_step"] = optimizer.backward_passes_per_step
    known = optimizer._horo_gradients.declared.by_param
    places = enumerate(_params(optimizer))
    names = [(known[id(old)].name if id(old) in known else f"parameter {i}", copied[id(old)]) for i, old in places]
    with streams.detached():
        return wrap(result, names, **options)


def _params(optimizer):
    return [param for group in optimizer.param_groups for param in group["params"]]
