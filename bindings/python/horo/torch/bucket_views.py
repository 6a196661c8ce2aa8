"""Gradients that live in their bucket: what a known plan reduces together lies side by side, so nothing is copied.

Which gradients travel together is known after the first steps, and may change later; so at the end of a step they move.
A view is a tensor of its own over a part of the bucket's memory, which lives as long as anybody has one of its views.
"""

import os
import warnings
import weakref

import torch

from horo.errors import HoroError

_all = weakref.WeakSet()


class BucketViews:
    """The buckets of one optimizer in one session, and who lives in them."""

    def __init__(self, session, number, slots):
        """number: of the process set. slots: of the optimizer, also those that join it later."""
        self._session = session
        self._number = number
        self._slots = slots
        self._version = None  # of the known plans that the views were made by
        self._buckets = {}  # plan: its memory
        _all.add(self)

    def arrange(self, slots, works):
        """After a step's end: what is in a plan of its own moves into a bucket. Works: of the slots, in order; they
        have ended. Of a plan live all or none, so that nothing is kept in vain. Returns whether some may have moved."""
        version = self._session.plans_version()
        if version == self._version:
            return False
        plans = {}
        for slot, (plan, offset, nbytes) in zip(slots, self._session.places(works)):
            if plan and slot.plan != plan:
                plans.setdefault((plan, nbytes), []).append((slot, offset))
        for (plan, nbytes), parts in plans.items():
            if sum(slot.param.nbytes for slot, _ in parts) == nbytes and all(_can_live(slot) for slot, _ in parts):
                self._move(plan, nbytes, parts)
        in_use = {slot.plan for slot in self._slots}
        self._buckets = {plan: bucket for plan, bucket in self._buckets.items() if plan in in_use}
        self._version = version
        return True

    def _move(self, plan, nbytes, parts):
        if nbytes == 0:
            return
        try:
            memory = self._session.allocate(nbytes, self._number)
        except HoroError as error:
            warnings.warn(f"gradient_as_bucket_view: {error}; these gradients are copied as before", stacklevel=2)
            return
        self._buckets[plan] = torch.frombuffer(memory, dtype=torch.uint8)
        for slot, offset in parts:
            slot.plan = plan
            if slot.param.nbytes > 0:
                count = slot.shape.numel()
                slot.move(torch.frombuffer(memory, dtype=slot.dtype, count=count, offset=offset).view(slot.shape))

    def zero(self):
        """All views become zeros, and count as no gradient until there is one. Returns (slot, gradient) of those whose
        gradient is its view."""
        for bucket in self._buckets.values():
            bucket.zero_()
        at_home = []
        for slot in self._slots:
            gradient = slot.param.grad
            if slot.is_at_home(gradient):
                slot.zeroed = True
                at_home.append((slot, gradient))
        return at_home

    def forget(self):
        """Gradients stay where they are, as tensors like others; the next step's end finds new places for them."""
        for slot in self._slots:
            slot.leave()
        self._buckets, self._version = {}, None

    def lose(self):
        """In a forked child, which may not have the memory."""
        for slot in self._slots:
            if slot.is_at_home(slot.param.grad):
                slot.param.grad = None
        self.forget()


def _can_live(slot):
    """Other ranks' memory is laid out like a tensor in one piece, and codecs read none of it."""
    param = slot.param
    as_declared = param.shape == slot.shape and param.dtype is slot.dtype
    return as_declared and param.is_contiguous() and slot.spec.codec is None


def _after_fork():
    for views in list(_all):
        views.lose()


os.register_at_fork(after_in_child=_after_fork)
