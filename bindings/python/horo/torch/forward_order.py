"""The order in which a forward pass first uses the parameters. The next forward needs their updates in this order."""

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from horo import _native
from horo._specs import Spec
from horo.errors import PeerLost


class ForwardOrder:
    """The order of the added parameters. A parameter is used when the forward of the module that owns it begins. One
    that no such forward uses follows the parameter that was added before it.

    The order is known after the first step. Until then it is the order of addition."""

    def __init__(self, ranks):
        """ranks: whether priorities follow the order; otherwise all priorities are equal."""
        self._ranks = ranks
        self._places = {}  # id of a parameter: how many were added before it
        self._next = 0
        self._used = {}  # the same, in the order of first use
        self.is_known = False
        self._hook = None

    def add(self, param):
        """Returns the parameter's priority until the order is known."""
        place = self._places[id(param)] = self._next
        self._next += 1
        if self._hook is None and not self.is_known:
            self._hook = _watch(self._places, self._used)
        return -place if self._ranks else 0

    def remove(self, param):
        """The parameter is gone; another one may get its id."""
        del self._places[id(param)]
        self._used.pop(id(param), None)

    def close(self):
        """Removes the hook that observes forward passes."""
        if self._hook is not None:
            self._hook.remove()

    def has_used(self, param):
        return id(param) in self._used

    def agreed(self, session, number, name):
        """Returns the priorities that follow from the order on the set's first rank, in the order of addition. A
        collective call of all ranks of the set. Blocks."""
        self.is_known = True
        self.close()
        if not self._ranks:
            return [0] * len(self._places)
        priorities = torch.tensor(self._priorities(), dtype=torch.int32, device="cpu")
        fields = {"dtype": _native.INT32, "shape": tuple(priorities.shape), "set": number}
        spec = Spec(f"forward order of {name}", _native.BROADCAST, **fields)
        while True:
            work = session.submit(spec, priorities.data_ptr(), priorities.data_ptr(), priorities)
            try:
                session.wait([work])
            except PeerLost:  # an elastic job has lost that rank: all others repeat it, or its submit raises
                if not session.is_elastic:
                    raise
                session.drop([work])
                continue
            session.release([work])
            return priorities.tolist()

    def forget(self):
        """Ranks have joined: the order is not known to all. Returns the priorities until it is again."""
        self.is_known = False
        return [-place if self._ranks else 0 for place in self._places.values()]

    def _priorities(self):
        """Priorities from 0 downwards."""
        ranks = {param: rank for rank, param in enumerate(self._used)}
        last, keys = -1, []
        for param, place in self._places.items():
            last = ranks.get(param, last)
            keys.append((last, place))
        by_key = {key: -i for i, key in enumerate(sorted(keys))}
        return [by_key[key] for key in keys]


def _watch(places, used):
    """Registers the hook. It refers to these two dicts only, because torch keeps it alive until it is removed."""

    def note(module, _):
        for param in module._parameters.values():
            if id(param) in places:
                used.setdefault(id(param), None)

    return register_module_forward_pre_hook(note)


def chosen_order(priority, cross_barrier):
    """Returns the ForwardOrder that the arguments of DistributedOptimizer need, or None."""
    if priority not in (None, "forward"):
        raise ValueError(f"priority={priority!r}; expected None or 'forward'")
    return ForwardOrder(priority == "forward") if priority or cross_barrier else None
