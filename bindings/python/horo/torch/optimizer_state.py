"""The state of an optimizer, put into another one as it is."""

import contextlib

import torch


def loads_plainly(optimizer):
    """Whether the state_dict() and load_state_dict() of the optimizer are those of torch, without hooks."""
    return saves_plainly(optimizer) and _is_plain(optimizer, "load_state_dict")


def saves_plainly(optimizer):
    """Whether the state_dict() of the optimizer is that of torch, without hooks."""
    return _is_plain(optimizer, "state_dict")


def _is_plain(optimizer, name):
    kinds = [vars(kind) for kind in type(optimizer).__mro__ if not kind.__module__.startswith("horo.")]
    owner = next((names for names in kinds if name in names), {})  # none: the methods are another object's
    if owner.get(name) is not vars(torch.optim.Optimizer)[name] or name in vars(optimizer):
        return False
    return not any(getattr(optimizer, f"_optimizer_{name}_{when}_hooks", None) for when in ("pre", "post"))


@contextlib.contextmanager
def state_as_saved(optimizer, is_kept=lambda param: True, added=None):
    """Within it, torch's load_state_dict() of the optimizer keeps the dtypes and types of the state of each parameter
    for which is_kept(param) is true. Without it, torch gives the state of a parameter the dtype of the parameter, and
    makes a dict of each mapping. added: {number of a parameter: dict} that goes into its state afterwards."""
    loaded = {}

    def restore(_):
        ids = (number for group in loaded["param_groups"] for number in group["params"])
        for number, param in zip(ids, (one for group in optimizer.param_groups for one in group["params"])):
            if number in loaded["state"] and is_kept(param):
                optimizer.state[param] = dict(loaded["state"][number])
            if added and number in added:
                optimizer.state[param].update(added[number])

    hooks = [
        optimizer.register_load_state_dict_pre_hook(lambda _, content: loaded.update(content)),  # after the script's
        optimizer.register_load_state_dict_post_hook(restore, prepend=True),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


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
