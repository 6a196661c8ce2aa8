"""In which order a forward pass uses parameters for the first time: the order in which the next one needs them."""

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from horo import _native
from horo._specs import Spec


class ForwardOrder:
    """Of the parameters that were added. A parameter is used when the forward of the module that owns it begins; one
    that no such forward was seen to use comes right behind the one that was added before it.

    Until the order is known, after the first step, it is that in which the parameters were added."""

    def __init__(self, ranks):
        """ranks: whether priorities follow the order; else all are equal."""
        self._ranks = ranks
        self._places = {}  # by id of a parameter: how many were added before it
        self._used = {}  # the same, in the order of first use
        self.is_known = False
        self._hook = None

    def add(self, param):
        """Returns its priority for now."""
        place = self._places[id(param)] = len(self._places)
        if self._hook is None and not self.is_known:
            self._hook = _watch(self._places, self._used)
        return -place if self._ranks else 0

    def close(self):
        """Looks no more."""
        if self._hook is not None:
            self._hook.remove()

    def has_used(self, param):
        return id(param) in self._used

    def agreed(self, session, number, name):
        """The priorities that the set's first rank saw, in the order of addition. All its ranks have to call this."""
        self.is_known = True
        self.close()
        if not self._ranks:
            return [0] * len(self._places)
        priorities = torch.tensor(self._priorities(), dtype=torch.int32, device="cpu")
        fields = {"dtype": _native.INT32, "shape": tuple(priorities.shape), "set": number}
        spec = Spec(f"forward order of {name}", _native.BROADCAST, **fields)
        work = session.submit(spec, priorities.data_ptr(), priorities.data_ptr(), priorities)
        session.wait([work])
        session.release([work])
        return priorities.tolist()

    def _priorities(self):
        """From 0 downwards; those not seen stay with the one before them."""
        ranks = {param: rank for rank, param in enumerate(self._used)}
        last, keys = -1, []
        for param, place in self._places.items():
            last = ranks.get(param, last)
            keys.append((last, place))
        by_key = {key: -i for i, key in enumerate(sorted(keys))}
        return [by_key[key] for key in keys]


def _watch(places, used):
    """The hook knows no more than it must: it lives in torch until it is removed."""

    def note(module, _):
        for param in module._parameters.values():
            if id(param) in places:
                used.setdefault(id(param), None)

    return register_module_forward_pre_hook(note)


def chosen_order(priority, cross_barrier):
    """From the arguments of DistributedOptimizer: None where nobody needs an order."""
    if priority not in (None, "forward"):
        raise ValueError(f"priority={priority!r}; expected None or 'forward'")
    return ForwardOrder(priority == "forward") if priority or cross_barrier else None
