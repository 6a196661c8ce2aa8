"""gradient_as_bucket_view: the gradients of one bucket are views of one buffer, so that none is packed or unpacked.

A bucket follows from a known plan. Plans are made after the first steps and can change later, so gradients move at the
end of a step. A view is a tensor of its own over a part of the bucket's memory. The memory is freed with the last view.
"""

import os
import warnings
import weakref

import torch

from horo.errors import HoroError, ShutDown
from horo.torch import devices

_all = weakref.WeakSet()


class BucketViews:
    """The buckets of one optimizer in one session."""

    def __init__(self, session, number, states):
        """number: of the process set. states: the ParameterStates of the optimizer, a list that may grow."""
        self._session = session
        self._number = number
        self._states = states
        self._version = None  # of the known plans from which the views were made
        self._epoch = session.topology.epoch  # of plans and buckets
        self._buckets = {}  # plan: its memory
        _all.add(self)

    def arrange(self, states, works):
        """At the end of a step: moves the gradients of each plan into a bucket. works: of these states, in the same
        order; they have ended. The gradients of a plan move together or not at all, as a partial bucket is of no use.
        Returns whether a view may have changed."""
        version = self._session.plans_version()
        if version == self._version:
            return False
        if self._epoch != self._session.topology.epoch:  # the other ranks do not map the memory of an old epoch
            self._epoch = self._session.topology.epoch
            self.forget()
        plans = {}
        for state, (plan, offset, nbytes) in zip(states, self._session.places(works)):
            if plan and state.plan != plan:
                plans.setdefault((plan, nbytes), []).append((state, offset))
        for (plan, nbytes), parts in plans.items():
            if sum(state.param.nbytes for state, _ in parts) == nbytes and all(_fits(state) for state, _ in parts):
                self._move(plan, nbytes, parts)
        in_use = {state.plan for state in self._states}
        self._buckets = {plan: bucket for plan, bucket in self._buckets.items() if plan in in_use}
        self._version = version
        return True

    def _move(self, plan, nbytes, parts):
        if nbytes == 0:
            return
        try:
            memory = self._session.allocate(nbytes, self._number)
        except HoroError as error:
            if self._session.is_elastic and isinstance(error, ShutDown):
                return  # the plan's epoch has ended; the next one has plans of its own
            warnings.warn(f"gradient_as_bucket_view: {error}; these gradients are copied as before", stacklevel=2)
            return
        self._buckets[plan] = torch.frombuffer(memory, dtype=torch.uint8)
        for state, offset in parts:
            state.plan = plan
            if state.param.nbytes > 0:
                count = state.shape.numel()
                view = torch.frombuffer(memory, dtype=state.dtype, count=count, offset=offset).view(state.shape)
                state.set_view(view)

    def zero(self):
        """Fills all buckets with zeros, which count as no gradient until one arrives. Returns (state, gradient) for
        each gradient that is in its view."""
        for bucket in self._buckets.values():
            bucket.zero_()
        in_view = []
        for state in self._states:
            gradient = state.param.grad
            if state.is_in_view(gradient):
                state.zeroed = True
                in_view.append((state, gradient))
        return in_view

    def forget(self):
        """Drops all views. The gradients stay where they are, as ordinary tensors; the end of the next step finds new
        buckets for them."""
        for state in self._states:
            state.drop_view()
        self._buckets, self._version = {}, None

    def lose(self):
        """In a forked child, which may not have the memory: gradients in views become None."""
        for state in self._states:
            if state.is_in_view(state.param.grad):
                state.param.grad = None
        self.forget()


def _fits(state):
    """Whether the gradient can be a view: the other ranks expect a contiguous tensor, codecs need a copy, and
    buckets are memory of the host."""
    param = state.param
    as_declared = param.shape == state.shape and param.dtype is state.dtype
    return as_declared and devices.is_host(param) and param.is_contiguous() and state.spec.codec is None


def _after_fork():
    for views in list(_all):
        views.lose()


os.register_at_fork(after_in_child=_after_fork)
