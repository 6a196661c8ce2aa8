"""One parameter whose gradient is reduced, and parameters whose gradients travel as one unit."""

import itertools

import torch

from horo import _default
from horo._handles import moved_text
from horo.errors import HoroError, not_yet
from horo.torch.arrays import look_of, versions_of

_NOWHERE = object()
_TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)


class Slot:
    """One parameter."""

    __slots__ = (
        "param",
        "dtype",
        "shape",
        "look",
        "spec",
        "key",
        "group",
        "duty",
        "passes_left",
        "work",
        "memory",
        "storage",
        "address",
        "version",
        "nbytes",
        "context",
        "spare",
        "sparse",
        "sparse_dim",
        "view",
        "home",
        "place",
        "plan",
        "zeroed",
    )

    def __init__(self, param, spec, passes):
        self.param = param
        self.dtype = param.dtype
        self.shape = param.shape
        self.look = look_of(param)
        self.spec = spec
        self.key = None
        self.group = None
        self.duty = None  # what its hook does for others first: see silence.py
        self.passes_left = passes  # backward passes until the gradient is complete
        self.work = None  # in flight
        self.memory = None  # where the result arrives: the gradient, or else a buffer
        self.storage = None  # of memory, where nobody but this keeps both alive
        self.address, self.nbytes = 0, param.nbytes  # of memory, when it was submitted
        self.version = 0  # likewise
        self.context = None  # what a compressor needs to undo its work
        self.spare = None  # memory for what the others have, where this rank has no gradient, and its context
        self.sparse = None  # in flight: the handle of a sparse gradient
        self.sparse_dim = None  # of the last sparse gradient
        self.leave()

    def is_complete_now(self):
        """A backward pass has reached it; whether that was the last one that is missing."""
        self.passes_left -= 1
        if self.passes_left < 0:
            raise AssertionError(f"gradient {self.spec.name}: {_TOO_MANY_PASSES}")
        return self.passes_left == 0

    def is_submitted(self):
        return self.work is not None or self.sparse is not None

    def start_over(self, passes):
        self.work = self.memory = self.storage = self.sparse = self.context = None
        self.passes_left = passes
        self.zeroed = False

    def leave(self):
        """It has no view."""
        self.view = None  # part of a bucket, where the gradient lives; shown to nobody, so that it stays what it is
        self.home = _NOWHERE  # the gradient that bring_home() made
        self.place = 0  # its address
        self.plan = None  # that the bucket is of
        self.zeroed = False  # the gradient is the view, of zeros, and stands for none

    def move(self, view):
        """The gradient, if there is one, lives in the view from now on."""
        self.view, self.place = view, view.data_ptr()
        gradient = self.param.grad
        if gradient is not None and gradient.layout is torch.strided:
            self.bring_home(gradient)

    def is_at_home(self, gradient):
        return (
            self.view is not None
            and gradient is not None
            and gradient.layout is torch.strided
            and gradient.data_ptr() == self.place
        )

    def bring_home(self, gradient):
        """Copied into the view, which becomes the parameter's gradient; returns that."""
        with torch.no_grad():
            self.view.copy_(gradient)
        self.home = self.param.grad = self.view.detach()
        return self.home

    def has_gradient(self, passes):
        """passes: backward passes per step. What zero_grad() left is none, unless somebody wrote to it."""
        gradient = self.param.grad
        if gradient is None:
            return False
        untouched = self.zeroed and self.passes_left == passes and self.is_at_home(gradient)
        return not untouched or bool(self.view.reshape(-1).view(torch.uint8).any())

    def empty_sparse(self):
        """A sparse gradient like the last one, of which there is nothing."""
        return torch.sparse_coo_tensor(
            torch.empty((self.sparse_dim, 0), dtype=torch.int64, device="cpu"),
            torch.empty((0, *self.shape[self.sparse_dim :]), dtype=self.dtype, device="cpu"),
            self.shape,
            check_invariants=True,
        )

    def submitted(self, memory, work):
        """The work reads and writes this memory."""
        self.work, self.memory = work, memory
        self.address, self.nbytes = memory.data_ptr(), memory.nbytes
        (self.version,) = versions_of([memory])

    def has_its_result(self):
        """The gradient is what was submitted, lies where it lay, and nobody wrote to it since."""
        memory = self.memory
        return (
            memory is not None
            and memory is self.param.grad
            and memory.data_ptr() == self.address
            and memory.nbytes == self.nbytes
            and versions_of([memory]) == [self.version]
        )

    def check_memory(self):
        """The submitted memory lies where it lay, and nobody wrote to it since, so that the result is in it."""
        name = f"gradient {self.spec.name}"
        if self.memory.data_ptr() != self.address or self.memory.nbytes != self.nbytes:
            raise HoroError(moved_text(name, self.nbytes, self.memory.nbytes))
        if versions_of([self.memory]) != [self.version]:
            raise HoroError(
                f"{name} was written to on rank {_default.rank()} while it was in flight, in place or by another "
                "backward pass: what it was and what was written are mixed. Call optimizer.synchronize() before you "
                "change gradients, and step() after each backward pass"
            )

    def check(self, gradient):
        """Raises what is wrong with a gradient that cannot be reduced."""
        name = self.spec.name
        if gradient.layout is torch.sparse_coo:
            raise ValueError(
                f"gradient {name} is sparse, and in a group: expected sparse_as_dense=True, or the parameter in no "
                "group"
            )
        if gradient.layout is not torch.strided:
            raise not_yet(f"gradient {name} is {gradient.layout}; this version reduces dense and COO gradients")
        if not gradient.is_cpu:
            raise not_yet(f"gradient {name} on {gradient.device}; this version reduces gradients on the CPU")
        assert not gradient.requires_grad, f"gradient {name} requires a gradient itself"
        if gradient.dtype is not self.dtype or gradient.shape != self.shape:
            raise ValueError(
                f"gradient {name} is {gradient.dtype} {list(gradient.shape)}; expected {self.dtype} "
                f"{list(self.shape)}, as the parameter was when DistributedOptimizer was made"
            )


class Group:
    """Gradients that are reduced as one unit, when the last of them is complete."""

    def __init__(self, name, slots):
        self.name = name
        self.slots = slots
        self._arrivals = itertools.count(1)
        for slot in slots:
            slot.group = self

    def arrive(self):
        """One of the gradients is complete; whether it was the last. Any thread."""
        return next(self._arrivals) == len(self.slots)

    def start_over(self):
        self._arrivals = itertools.count(1)


def chosen_groups(groups, num_groups, params):
    """Lists of parameters, from the arguments of DistributedOptimizer; those in none travel by themselves."""
    if isinstance(groups, bool) or not isinstance(groups, (int, list, type(None))):
        raise ValueError(f"groups={groups!r}; expected None, a number or a list of lists of parameters")
    if isinstance(groups, list):
        return _checked(groups, params)
    number = groups if groups is not None else num_groups
    if number < 0:
        raise ValueError(f"groups={number}; expected a number of at least 0")
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
