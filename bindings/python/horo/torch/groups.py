"""Groups of parameters whose gradients are reduced as one unit."""

import itertools

import torch

from horo._arguments import whole
from horo.torch import devices


class Group:
    """The ParameterStates of one group. It is submitted when the last of their gradients is complete: by the hook of
    that one, whose streams wait for the others."""

    def __init__(self, name, states):
        self.name = name
        self.states = states
        self.start_over()
        for state in states:
            state.group = self

    def arrive(self, state):
        """The gradient of this ParameterState is complete when the current stream of its device has done what it has.
        Returns whether it is the last of the group. Any thread may call it."""
        if not devices.is_host(state.param):
            places, number = devices.places, devices.places.number_of(state.param)
            self._events[number, places.stream_of(number)] = places.record(number)  # of a stream the last one suffices
        return next(self._arrivals) == len(self.states)

    def _follow(self):
        """The current streams wait for the gradients that are complete on others."""
        places = devices.places
        others = [(place, event) for place, event in self._events.items() if places.stream_of(place[0]) != place[1]]
        for (number, _), event in others:
            places.follow(number, event)
        for state in self.states if others else ():
            _hold(state.param.grad)

    def submit(self, table, payloads, round_state):
        """Submits all gradients of the group; those that this rank does not have, as absent."""
        session = table.session
        self._follow()
        states = [state for state in self.states if not state.is_lent]
        has_reached = round_state.has_reached
        pairs = [payloads.part_of_unit(one, session, has_reached(one), round_state.is_absent) for one in states]
        works = session.submit_unit(self.name, [part for part, _ in pairs])
        for state, work, (part, memory) in zip(states, works, pairs):
            table.add(state, part[3] if memory is None else memory, work, absent=memory is None)

    def start_over(self):
        """Begins a new round."""
        self._arrivals = itertools.count(1)
        self._events = {}  # (device, stream): an event behind the gradients that became complete there


def _hold(gradient):
    """The current stream may copy the gradient, whose memory may belong to another stream."""
    if gradient is None:
        return
    is_sparse = gradient.layout is torch.sparse_coo
    for part in (gradient._indices(), gradient._values()) if is_sparse else (gradient,):
        devices.hold(part)


def chosen_groups(groups, num_groups, params):
    """Returns lists of parameters, made from the arguments of DistributedOptimizer. A parameter in no list is reduced
    by itself."""
    if isinstance(groups, list):
        return _checked(groups, params)
    if groups is None:
        number = whole(num_groups, "num_groups", "a number of at least 0", 0)
    else:
        number = whole(groups, "groups", "None, a number of at least 0 or a list of lists of parameters", 0)
    number = min(number, len(params))
    ends = [len(params) * i // number for i in range(number + 1)] if number else []
    return [params[begin:end] for begin, end in zip(ends, ends[1:])]


def _checked(groups, params):
    known = {id(param) for param in params}
    seen = set()
    for group in groups:
        if not isinstance(group, (list, tuple)) or not all(isinstance(param, torch.Tensor) for param in group):
            raise ValueError("groups should consist of lists of parameters, such as [[first.weight, first.bias], ...]")
        for param in group:
            if id(param) not in known:
                raise ValueError(f"groups: a parameter of shape {list(param.shape)} is not one of the optimizer's")
            if id(param) in seen:
                raise ValueError(f"groups: a parameter of shape {list(param.shape)} is in two groups, or twice in one")
            seen.add(id(param))
    return [list(group) for group in groups if group]
