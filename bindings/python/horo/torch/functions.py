"""Broadcasts of the initial state to all ranks: parameters, optimizer state, arbitrary objects; the mean of a loss."""

import copy
import inspect
import numbers

import torch
from torch.nn.parameter import UninitializedTensorMixin

from horo import _default
from horo._arguments import rank_number
from horo._changes import held
from horo._handles import synchronize
from horo._sets import global_process_set
from horo._specs import Average, Sum
from horo.errors import Mismatch, PeerLost
from horo.torch import objects, ops
from horo.torch.arrays import UNINITIALIZED
from horo.torch.optimizer_state import load_exactly, loads_plainly

_OPTIMIZER = "broadcast_optimizer_state"


def broadcast_parameters(params, root_rank, *, process_set=global_process_set):
    """Replaces the values of params, a state_dict or a list of (name, tensor) or tensors, by those of root_rank. A
    model stands for its state_dict()."""
    root_rank = rank_number(root_rank, "root_rank")
    pairs = _pairs_of(params)
    if not pairs:
        return
    named = [(f"broadcast_parameters/{name}", tensor) for name, tensor in pairs]
    may_become_root = _default.session().topology.min_size > 0 and _default.rank() != root_rank
    own = [tensor.detach().clone() for _, tensor in pairs] if may_become_root else []

    def restore():  # some may have the values of a root that was lost
        for (_, tensor), value in zip(pairs, own):
            tensor.detach().copy_(value)

    def attempt(root):
        if root.is_here():
            restore()
        _broadcast_all(named, root, process_set)

    try:
        _repeated(attempt, root_rank, process_set)
    except PeerLost:
        restore()
        raise


def _pairs_of(params):
    """[(name, tensor)] of the argument of broadcast_parameters, in an order that is equal on all ranks."""
    if isinstance(params, torch.nn.Module):
        params = params.state_dict()
    if isinstance(params, dict):
        pairs = sorted(params.items())
    elif isinstance(params, (list, tuple)) or inspect.isgenerator(params):
        pairs = [pair if isinstance(pair, tuple) else (str(i), pair) for i, pair in enumerate(params)]
        if not pairs and inspect.isgenerator(params):
            raise ValueError("horo.broadcast_parameters: the generator is empty, as it gives its values once")
    else:
        is_optimizer = isinstance(params, torch.optim.Optimizer)
        more = "; broadcast_optimizer_state(optimizer, root_rank) is for optimizers" if is_optimizer else ""
        raise ValueError(f"invalid params of type: {type(params)}; expected a dict or a list, or a model{more}")
    for name, tensor in pairs:
        if isinstance(tensor, UninitializedTensorMixin):
            raise ValueError(f"horo.broadcast_parameters: {name}: {UNINITIALIZED}")
        if not isinstance(tensor, torch.Tensor):
            is_state = {"state", "param_groups"} <= {name for name, _ in pairs}
            more = "; for an optimizer call broadcast_optimizer_state(optimizer, root_rank)" if is_state else ""
            raise ValueError(
                f"horo.broadcast_parameters: {name} is a {type(tensor).__name__}; expected a tensor"
                f"{more or '; broadcast_object() is for other values'}"
            )
    return pairs


class _Root:
    """The process that has the number root_rank when an attempt begins. Its number may change between the parts."""

    def __init__(self, root_rank):
        self._number = root_rank
        members = _default.session().world.members
        self._member = members[root_rank] if 0 <= root_rank < len(members) else None

    def number(self):
        """Its present one. That of a root that is gone, which another thread has seen, fails on all ranks."""
        members = _default.session().world.members
        return members.index(self._member) if self._member in members else self._number

    def is_here(self):
        return _default.rank() == self.number()


class _PartLost(Exception):
    """A part of a call has failed because a rank was lost. It has on all ranks: a collective ends on all or on none."""

    def __init__(self, lost):
        self.lost = lost  # the PeerLost


def _wait(handles):
    """The results of the parts of a call. If some have failed because a rank was lost, raises _PartLost after all of
    them have ended."""
    results, lost = [], None
    for handle in handles:
        try:
            results.append(synchronize(handle))
        except PeerLost as error:
            lost = lost or error
    if lost is not None:
        raise _PartLost(lost)
    return results


def _repeated(attempt, root_rank, process_set):
    """attempt(root): all parts of a call, from this _Root. If an elastic job loses a rank, and a part of the call with
    it, all ranks that are left repeat the call as a whole, from the rank that has the root's number then."""
    with held:  # functions of on_change() are called at the end of the call
        while True:
            try:
                return attempt(_Root(root_rank))
            except _PartLost as part:
                lost = part.lost
            if _default.session().topology.min_size == 0 or root_rank not in process_set.ranks:
                raise lost


def _broadcast_all(named, root, process_set):
    """One attempt. named: (name, tensor) in the order of all ranks."""
    number = root.number()
    _wait([ops.broadcast_async_(tensor, number, name, process_set) for name, tensor in named])


def broadcast_optimizer_state(optimizer, root_rank, model=None, *, process_set=global_process_set):
    """Replaces the optimizer's state and settings by those of root_rank. This rank's state may be empty.

    The root's state determines the entries, their dtypes and types; no optimizer step is run to create them. model is
    accepted for older scripts. Where the optimizer's class has a load_state_dict() of its own, all ranks call it, the
    root too: it may convert what it gets.
    """
    del model
    if not (hasattr(optimizer, "param_groups") and hasattr(optimizer, "load_state_dict")):
        kind = optimizer.__name__ if isinstance(optimizer, type) else type(optimizer).__name__
        is_model = isinstance(optimizer, torch.nn.Module)
        raise TypeError(
            f"horo.{_OPTIMIZER}: expected an optimizer, not {kind}"
            + ("; broadcast_parameters(model.state_dict(), root_rank) is for models" if is_model else "")
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    root_rank = rank_number(root_rank, "root_rank")
    with held:  # functions of on_change() find the new state
        state = _repeated(lambda root: _optimizer_state(optimizer, root, process_set), root_rank, process_set)
        _load_on_all(optimizer, state, process_set)
        if hasattr(optimizer, "horo_divide"):
            optimizer.horo_divide(process_set)


def _load_on_all(optimizer, state, process_set):
    """load_exactly() of the root's state, or None. If a rank cannot load it, all ranks raise Mismatch."""
    problem = None
    try:
        if state is not None:
            load_exactly(optimizer, state)
    except Exception as error:
        problem = error
    texts = allgather_object(problem and f"{type(problem).__name__}: {problem}", _OPTIMIZER, process_set)
    said = [f"rank {process_set.rank_at(place)}: {text}" for place, text in enumerate(texts) if text is not None]
    if said:
        raise Mismatch(
            f"horo.{_OPTIMIZER}: the optimizers of these ranks cannot load the state of the root: {'; '.join(said)}. "
            "Give the optimizers of all ranks the same groups of parameters"
        ) from problem


def _optimizer_state(optimizer, root, process_set):
    """One attempt. Returns the root's state_dict; None if this rank has it."""
    is_root = root.is_here()
    if is_divided := hasattr(optimizer, "horo_rest"):
        is_divided = not _object(optimizer.horo_rest() is None, root, f"{_OPTIMIZER}.whole", process_set)
    mine = optimizer.horo_gather() if is_divided else optimizer.state_dict() if is_root else None
    params = (param for group in optimizer.param_groups for param in group["params"])
    near = next((param.device for param in params if param.device.type != "cpu"), None)
    state = _state(is_root, mine, _OPTIMIZER, root, process_set, near)
    if is_root:
        return None if loads_plainly(optimizer) else copy.deepcopy(mine)
    return state


def broadcast_state(state, name, root_rank=0, process_set=global_process_set):
    """root_rank's state, on every rank: broadcast_object(), but its tensors are not pickled, and come to the current
    device of each rank. Every rank gives one that can be pickled."""
    return _repeated(lambda root: _state(root.is_here(), state, name, root, process_set), root_rank, process_set)


def _state(is_root, mine, name, root, process_set, near=None):
    """One attempt of it. mine: of the root. near: see objects.room()."""
    outline, tensors = objects.pack(mine) if is_root else (None, None)
    outline = _object(outline, root, name, process_set)
    if not is_root:
        tensors = objects.room(outline, near)
    _broadcast_all([(f"{name}/{i}", tensor) for i, tensor in enumerate(tensors)], root, process_set)
    return mine if is_root else objects.unpack(outline, tensors)


def _part(name, suffix):
    return None if name is None else name + suffix


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """root_rank's object, on every rank. Pickled; takes two collectives, for the size and the bytes.

    If an elastic job loses a rank, and one of the two with it, all ranks that are left repeat both, from the rank that
    has the number root_rank then: so `obj` is an object that this rank could send, if there is one."""
    root_rank = rank_number(root_rank, "root_rank")
    return _repeated(lambda root: _object(obj, root, name, process_set), root_rank, process_set)


def _object(obj, root, name, process_set):
    """One attempt of broadcast_object."""
    is_root = root.is_here()
    payload = objects.to_bytes(obj) if is_root else None
    size = torch.tensor([payload.numel() if is_root else 0], device="cpu")
    _wait([ops.broadcast_async_(size, root.number(), _part(name, ".sz"), process_set)])
    if not is_root:
        payload = torch.empty(int(size), dtype=torch.uint8, device="cpu")
    _wait([ops.broadcast_async_(payload, root.number(), _part(name, ".t"), process_set)])
    return obj if is_root else objects.from_bytes(payload)


def allgather_object(obj, name=None, process_set=global_process_set):
    """Every rank's object, in a list by rank. Pickled; takes one collective."""
    gathered, sizes = synchronize(
        ops.allgather_async(objects.to_bytes(obj), _part(name, ".t"), process_set, with_rows=True)
    )
    return [objects.from_bytes(part) for part in gathered.split(list(sizes))]


def averaged_loss(loss, process_set=global_process_set, *, op=Average, name="averaged_loss"):
    """The mean of the ranks' losses, or with op=Sum the sum, with the same bits on all ranks and without a graph: a
    tensor of the loss's shape, dtype and device, or a number for a number.

    loss: a real tensor of one element, or a number. Anything else (None, a tuple) is no loss: it does not count, and is
    returned as it is. A collective call of all ranks of the set; ranks outside of it get their own loss. Blocks.
    """
    if not process_set.included():
        return loss
    is_tensor = isinstance(loss, torch.Tensor)
    counts = loss.numel() == 1 and not loss.is_complex() if is_tensor else isinstance(loss, numbers.Real)
    total = torch.tensor(
        [float(loss.detach() if is_tensor else loss) if counts else 0.0, float(counts)],
        dtype=torch.float64,
        device="cpu",
    )
    synchronize(ops.allreduce_async_(total, name=name, op=Sum, process_set=process_set))
    if not counts:
        return loss
    mean = (total[0] if op == Sum else total[0] / total[1]).item()
    if not is_tensor:
        return mean
    return torch.full_like(loss, mean, dtype=loss.dtype if loss.is_floating_point() else torch.get_default_dtype())
