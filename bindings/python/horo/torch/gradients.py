"""Gradients on their way: each parameter is declared once, its hook submits, collect() waits for all of them.

The hook runs once per parameter and step while backward still computes, so it does no more than it must: it reads
the gradient's address, which may differ each step, and makes one foreign call.
"""

import weakref

import torch

from horo import _default
from horo._native import ALL_REDUCE, quick
from horo._session import Spec, error_of
from horo.errors import HoroError, not_yet
from horo.torch.ops import DTYPES, moved_text

_TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)


class _Slot:
    """One parameter."""

    __slots__ = ("param", "dtype", "shape", "spec", "key", "passes_left", "work", "memory", "address", "spare")

    def __init__(self, param, spec, passes):
        self.param = param
        self.dtype = param.dtype
        self.shape = param.shape
        self.spec = spec
        self.key = None
        self.passes_left = passes  # backward passes until the gradient is complete
        self.work = None  # in flight
        self.memory = None  # where the result arrives: the gradient, or else a buffer of its size
        self.address = 0  # of memory, when it was submitted
        self.spare = None  # a buffer that was not needed last time

    def is_like(self, gradient):
        """It has what was declared, so that its memory may be touched."""
        return (
            gradient.dtype is self.dtype
            and gradient.shape == self.shape
            and gradient.is_cpu
            and gradient.layout is torch.strided
            and not gradient.requires_grad
        )

    def nbytes(self):
        return self.shape.numel() * self.dtype.itemsize

    def is_in_place(self):
        """The submitted gradient lies where it lay, so that the result is in it."""
        return self.memory.data_ptr() == self.address and self.memory.shape == self.shape

    def refuse(self, gradient):
        """Raises what is wrong with a gradient that is not like it."""
        name = self.spec.name
        if gradient.layout is not torch.strided:
            raise not_yet(f"gradient {name} is {gradient.layout}; this version reduces dense gradients")
        if not gradient.is_cpu:
            raise not_yet(f"gradient {name} on {gradient.device}; this version reduces gradients on the CPU")
        assert not gradient.requires_grad, f"gradient {name} requires a gradient itself"
        raise ValueError(
            f"gradient {name} is {gradient.dtype} {list(gradient.shape)}; expected {self.dtype} {list(self.shape)}, as "
            "the parameter was when DistributedOptimizer was made"
        )


class Gradients:
    """The gradients of the declared parameters. Any thread may run the hooks; one thread at a time the rest."""

    def __init__(self, common, passes):
        """common: a Spec of what is the same for all parameters; passes: backward passes per step."""
        self.passes = passes
        self._common = common
        self._slots = []
        self._hooks = []
        self._session = None
        self._pointer = None
        self._connect()

    def add(self, name, param):
        """Declares the parameter and submits its gradient from now on as soon as it is complete."""
        dtype = DTYPES.get(param.dtype)
        if dtype is None:
            raise ValueError(f"parameter {name}: gradients of {param.dtype} are not supported")
        if not param.is_cpu:
            raise not_yet(f"parameter {name} on {param.device}; this version reduces gradients on the CPU")
        spec = self._common._replace(name=name, kind=ALL_REDUCE, dtype=dtype, shape=tuple(param.shape), stepwise=1)
        slot = _Slot(param, spec, self.passes)
        slot.key = self._session.key(spec)
        self._slots.append(slot)
        self._hooks.append(param.register_post_accumulate_grad_hook(self._hook_of(slot)))

    def close_with(self, owner):
        """When owner is gone: no hook any more, and nobody waits for what is in flight."""
        weakref.finalize(owner, _close, self._hooks, self).atexit = False

    def abandon(self):
        """Starts over; works in flight go on unseen."""
        self._session.drop([slot.work for slot in self._slots if slot.work is not None])
        self._start_over()

    def _start_over(self):
        for slot in self._slots:
            slot.work = slot.memory = None
            slot.passes_left = self.passes

    def has_begun(self):
        """Since the last collect() a backward pass has reached one of the parameters."""
        return any(slot.work is not None or slot.passes_left != self.passes for slot in self._slots)

    def collect(self):
        """Submits what is missing, waits for all, and leaves the results in the gradients.

        A parameter without a gradient here counts as absent: it gets the others' result, or, where nobody has one,
        stays without.
        """
        if self._session.closed:
            self._connect()
        session = self._session
        try:
            for slot in self._slots:
                if slot.work is None:
                    self._submit_late(slot)
            works = [slot.work for slot in self._slots]
            session.wait(works)
            for slot in self._slots:
                self._deliver(slot, session)
        except Exception:  # an interrupt is none: the works go on, and may be waited for again
            self.abandon()
            raise
        session.release(works)
        self._start_over()
        session.step_end()

    def hooks(self):
        """What backward calls for each parameter, in order of declaration."""
        return [self._hook_of(slot) for slot in self._slots]

    def _hook_of(self, slot):
        submit = quick.horo_submit

        def hook(param):
            if slot.passes_left <= 0:
                raise AssertionError(f"gradient {slot.spec.name}: {_TOO_MANY_PASSES}")
            slot.passes_left -= 1
            if slot.passes_left:
                return
            gradient = param.grad
            if not (slot.is_like(gradient) and gradient.is_contiguous()):
                self._submit(slot)
                return
            address = gradient.data_ptr()
            work = submit(self._pointer, slot.key, address, address)
            if work <= 0:
                self._submit_again(slot, gradient, work)
                return
            slot.work = work
            slot.memory, slot.address = gradient, address
            # The storage too: a gradient that is given another one lets go of the old one, which is in flight.
            self._kept[work] = (gradient, gradient.untyped_storage())

        return hook

    def _connect(self):
        """To the session of now: after shutdown() and init() it is another one, and knows no parameter."""
        self._session = _default.session()
        self._pointer = self._session.pointer
        self._kept = self._session.kept
        for slot in self._slots:
            slot.key = self._session.key(slot.spec)
            slot.work = slot.memory = None

    def _submit_again(self, slot, memory, status):
        """A submit failed: perhaps the session is an old one."""
        error = error_of(status, self._pointer)
        if not self._session.closed:
            raise error
        self._connect()
        self._place(slot, memory)

    def _place(self, slot, memory):
        address, keep = memory.data_ptr(), (memory, memory.untyped_storage())
        slot.work = self._session.submit_key(slot.key, address, address, keep)
        slot.memory, slot.address = memory, address

    def _submit(self, slot):
        """The gradient as it is, from a copy where it does not lie in one piece."""
        gradient = slot.param.grad
        if not slot.is_like(gradient):
            slot.refuse(gradient)
        if self._session.closed:
            self._connect()
        self._place(slot, gradient.contiguous())

    def _submit_late(self, slot):
        """Of a parameter that no hook submitted in this step."""
        if slot.param.grad is not None:
            self._submit(slot)
            return
        if slot.spare is None:
            slot.spare = torch.empty(slot.shape, dtype=slot.dtype, device="cpu")
        slot.work = self._session.submit_absent(slot.key, slot.spare.data_ptr(), slot.spare)

    def _deliver(self, slot, session):
        gradient = slot.param.grad
        if slot.memory is not None and not slot.is_in_place():
            raise HoroError(moved_text(f"gradient {slot.spec.name}", slot.nbytes(), slot.memory.nbytes))
        if slot.memory is None:  # absent here
            if not session.result(slot.work).absent:
                slot.param.grad, slot.spare = slot.spare, None
        elif gradient is None:  # somebody forgot it since
            slot.param.grad = slot.memory
        elif gradient is not slot.memory:
            with torch.no_grad():
                gradient.copy_(slot.memory)


def _close(hooks, gradients):
    for hook in hooks:
        hook.remove()
    gradients.abandon()


def common_spec(op, order, factor):
    """What all gradients share; factor divides before the reduction and multiplies after it."""
    return Spec(None, ALL_REDUCE, op, order=order, prescale=1.0 / factor, postscale=factor)
