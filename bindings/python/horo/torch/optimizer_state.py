"""The state of an optimizer, put into another one as it is."""

import contextlib
import copy

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
def state_as_saved(optimizer, is_kept=lambda param: True, added=None, keeps_devices=False):
    """Within it, load_state_dict() of an optimizer of torch gives the state of each parameter for which is_kept(param)
    is true the dtypes and types that it has in the dict. Without it, torch gives tensors of the state of a parameter of
    floats the dtype and the device of the parameter, and makes a dict of each mapping.

    A tensor comes to the device on which the optimizer had that of the same key before; if it had none, to the one on
    which torch puts it. keeps_devices: it stays where it is in the dict, but comes to the GPU of the parameter if both
    are on GPUs. added: {number of a parameter: dict} that goes into its state afterwards."""
    loaded, devices = {}, {}

    def see(_, content):
        loaded.update(content)
        for param, entry in optimizer.state.items():
            if isinstance(entry, dict):
                devices[param] = {key: one.device for key, one in entry.items() if isinstance(one, torch.Tensor)}

    def placed(param, key, value):
        if isinstance(value, torch.Tensor) and key in devices.get(param, ()):
            return value.to(devices[param][key])
        return _on_devices_of(value, optimizer.state[param].get(key))

    def restore(_):
        ids = (number for group in loaded["param_groups"] for number in group["params"])
        for number, param in zip(ids, (one for group in optimizer.param_groups for one in group["params"])):
            if number in loaded["state"] and is_kept(param):
                entry = dict(loaded["state"][number])
                if keeps_devices:
                    entry = _beside(param, entry)
                else:
                    entry = {key: placed(param, key, value) for key, value in entry.items()}
                optimizer.state[param] = entry
            if added and number in added:
                optimizer.state[param].update(added[number])

    hooks = [
        optimizer.register_load_state_dict_pre_hook(see),  # after those of the script
        optimizer.register_load_state_dict_post_hook(restore, prepend=True),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _on_devices_of(value, there):
    """The value with its tensors on the devices of those of `there`, which has the same places."""
    if isinstance(value, torch.Tensor):
        return value.to(there.device) if isinstance(there, torch.Tensor) else value
    if isinstance(value, dict) and isinstance(there, dict):
        return _mapped(value, lambda one, key: _on_devices_of(one, there.get(key)))
    if isinstance(value, (list, tuple)) and isinstance(there, (list, tuple)):
        there = dict(enumerate(there))
        return _mapped(value, lambda one, place: _on_devices_of(one, there.get(place)))
    return value


def _beside(param, value):
    """The value with its tensors on the device of the parameter, if that is of the same type: state that has come from
    another rank is on the current GPU. Others, such as steps that are counted on the host, stay where they are."""
    if isinstance(value, torch.Tensor):
        return value.to(param.device) if value.device.type == param.device.type else value
    return _mapped(value, lambda one, _: _beside(param, one))


def _mapped(value, call):
    """A dict, list or tuple of call(value, key or place); others, and one of which nothing changes, as they are."""
    if isinstance(value, dict):
        found = {key: call(one, key) for key, one in value.items()}
        if any(found[key] is not one for key, one in value.items()):
            value = copy.copy(value)
            value.update(found)
    elif isinstance(value, (list, tuple)):
        found = [call(one, place) for place, one in enumerate(value)]
        if any(one is not before for one, before in zip(found, value)):
            return type(value)(*found) if hasattr(value, "_fields") else type(value)(found)
    return value


def load_exactly(optimizer, state):
    """load_state_dict(), but the values keep their dtypes and types: torch gives the state of a parameter the dtype of
    the parameter, and makes a dict of each mapping. Tensors of GPUs come to the GPU of their parameter. An optimizer
    with a load_state_dict() of its own decides itself; one whose ranks divide the state has horo_load()."""
    if hasattr(optimizer, "horo_load"):
        return optimizer.horo_load(state)
    if not loads_plainly(optimizer):
        return optimizer.load_state_dict(state)
    optimizer.load_state_dict({**state, "state": {}})
    params = (param for group in optimizer.param_groups for param in group["params"])
    ids = (number for group in state["param_groups"] for number in group["params"])
    of_id = dict(zip(ids, params))
    for key, value in state["state"].items():
        param = of_id.get(key, key)
        optimizer.state[param] = _beside(param, value) if isinstance(param, torch.Tensor) else value
