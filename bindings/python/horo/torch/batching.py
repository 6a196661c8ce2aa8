"""Batches of small gradients: one foreign call submits up to 128 of them, or 2 MiB.

A hook in Python and a foreign call take several microseconds per gradient. So autograd only appends a small parameter
to the list `ready`, as the hook is that list's append. The next parameter with a hook of its own submits the list. The
batches of most steps are the same, so data that depend on a batch's parameters alone are computed once (BatchTemplate).
"""

import ctypes
import operator

import torch

from horo.torch.arrays import is_lazy, is_shared
from horo.torch.gradient_table import addresses_of

SMALL_BYTES = 64 << 10  # a larger gradient is submitted by itself: its transfer takes longer than its submit
MAX_COUNT, MAX_BYTES = 128, 2 << 20  # limits of one batch, approximately

_USE_COUNT = torch._C._storage_Use_Count
_POINTER = operator.attrgetter("_cdata")
_SIGNATURE = operator.attrgetter("dtype", "shape", "layout", "is_cpu", "requires_grad")


def is_small(state):
    """Whether the gradient may be part of a batch."""
    return state.nbytes <= SMALL_BYTES and not state.dtype.is_complex


def is_as_declared(state, gradient):
    """Whether a batch can take this gradient."""
    return BatchTemplate([state], None).storages([gradient]) is not None


class Batching:
    """The batches of one optimizer. Autograd may append to `ready` in any thread; a caller of the methods holds the
    lock of Gradients."""

    def __init__(self):
        self.ready = []  # parameters whose gradients are complete and not submitted
        self._space = 0.0  # free part of the batch to which the next small parameter belongs
        self._layouts = []  # of the last step's batches, in order
        self._next = 0  # index of the layout that is expected next

    def joins(self, state):
        """Decides at its declaration whether a small parameter is appended to `ready`. If not, it gets a hook of its
        own, which submits the batch: this is so for the first parameter and whenever a batch is full."""
        joins = self._space > 0
        self._space = (self._space if joins else 1) - max(1 / MAX_COUNT, state.nbytes / MAX_BYTES)
        return joins

    def take(self):
        """Empties `ready` and returns its parameters."""
        taken = self.ready[:]
        del self.ready[: len(taken)]
        return taken

    def find(self, params, trigger):
        """Returns the layout of these parameters if the last step had the same batch at this point, else None.

        trigger: the ParameterState whose hook submits the batch; None if the end of backward does."""
        if self._next < len(self._layouts):
            layout = self._layouts[self._next]
            alike = layout.trigger is trigger and len(layout.params) == len(params)
            if alike and all(map(operator.is_, layout.params, params)):
                self._next += 1
                return layout
        return None

    def learn(self, states, trigger):
        """Makes the layout of a batch that the last step did not have at this point."""
        self._layouts[self._next :] = [BatchTemplate(states, trigger)]
        self._next += 1
        return self._layouts[-1]

    def start_over(self):
        """Begins a new round."""
        self.ready.clear()
        self._next = 0

    def forget(self):
        """Keys and views may have changed: no layout is valid any more."""
        self._layouts.clear()
        self._next = 0


class BatchTemplate:
    """The data of a batch that depend on its parameters alone and stay the same from step to step."""

    def __init__(self, states, trigger):
        self.states, self.trigger = states, trigger
        self.params = [state.param for state in states]
        self.nbytes = [state.nbytes for state in states]
        self.keys = (ctypes.c_int64 * len(states))(*[state.key for state in states])
        self._signatures = [(state.dtype, state.shape, torch.strided, True, False) for state in states]
        has_views = any(state.view_address for state in states)
        self._view_addresses = [state.view_address for state in states] if has_views else None

    def locate(self, gradients):
        """Returns the storages and addresses of the gradients, or None where storages() does. Gradients outside their
        views are copied into them; `gradients` then holds the views."""
        storages = self.storages(gradients)
        if storages is None:
            return None
        addresses = addresses_of(gradients)
        if self._view_addresses is not None and self._view_addresses != addresses:
            for i, state in enumerate(self.states):
                if state.view_address and state.view_address != addresses[i]:
                    gradients[i] = state.copy_into_view(gradients[i])
                    storages[i], addresses[i] = state.view, state.view_address
        return storages, addresses

    def storages(self, gradients):
        """Returns the storages of the gradients, or None if one of them is not dense, contiguous and as declared, or
        if anything else holds memory that would be reduced in place."""
        try:
            if list(map(_SIGNATURE, gradients)) != self._signatures:
                return None
        except AttributeError:  # a gradient is None
            return None
        if not all(map(torch.Tensor.is_contiguous, gradients)):
            return None
        storages = list(map(torch.Tensor.untyped_storage, gradients))
        alike = list(map(torch.UntypedStorage.nbytes, storages)) == self.nbytes
        if not alike and any(map(is_lazy, gradients, storages)):
            return None
        if not alike or max(map(_USE_COUNT, map(_POINTER, storages))) > 2:  # see is_shared
            in_place = (pair for pair, state in zip(zip(gradients, storages), self.states) if not state.view_address)
            if any(is_shared(gradient, storage) for gradient, storage in in_place):
                return None
        return storages
