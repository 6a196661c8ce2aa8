"""The state of an optimizer, put into another one as it is."""

import torch

_HOOKS = ("state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post")


def loads_plainly(optimizer):
    """Whether the state_dict() and load_state_dict() of the optimizer are those of torch, without hooks."""
    kinds = [kind for kind in type(optimizer).__mro__ if not kind.__module__.startswith("horo.")]
    kinds = [vars(kind) for kind in kinds]
    for name in ("state_dict", "load_state_dict"):
        owner = next((names for names in kinds if name in names), {})  # none: the methods are another object's
        if owner.get(name) is not vars(torch.optim.Optimizer)[name] or name in vars(optimizer):
            return False
    return not any(getattr(optimizer, f"_optimizer_{hooks}_hooks", None) for hooks in _HOOKS)


def load_exactly(optimizer, state):
    """load_state_dict(), but the values keep their dtypes and types: torch gives the state of a parameter the dtype of
    the parameter, and makes a dict of each mapping. An optimizer with a load_state_dict() of its own decides itself;
    one whose ranks divide the state has horo_load()."""
    if hasattr(optimizer, "horo_load"):
        return optimizer.horo_load(state)
    if not loads_plainly(optimizer):
        return optimizer.load_state_dict(state)
    optimizer.load_state_dict({**state, "state": {}})
    params = (param for group in optimizer.param_groups for param in group["params"])
    ids = (number for group in state["param_groups"] for number in group["params"])
    of_id = dict(zip(ids, params))
    for key, value in state["state"].items():
        optimizer.state[of_id.get(key, key)] = value
