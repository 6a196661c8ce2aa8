"""One parameter whose gradient is reduced: how it was declared, and where its gradient belongs."""

import torch

from horo.errors import not_yet
from horo.torch import devices

_NO_TENSOR = object()


class ParameterState:
    """One parameter. It holds nothing of a single submit: see GradientTable."""

    __slots__ = (
        "name",
        "param",
        "dtype",
        "shape",
        "nbytes",
        "spec",
        "key",
        "group",
        "context",
        "spare",
        "layout",
        "view",
        "view_gradient",
        "view_address",
        "plan",
        "zeroed",
        "is_lent",
        "is_late",
        "_has_result",
        "_values",
    )

    def __init__(self, name, param, spec):
        self.name = name  # of the parameter; spec.name is the tensor's
        self.param = param
        self.dtype, self.shape, self.nbytes = param.dtype, param.shape, param.nbytes
        self.spec = spec
        self.key = None  # of the declared spec, in the current session
        self.group = None  # its Group, or None
        self.context = None  # the compressor's context for decompress()
        self.spare = None  # buffer and context for the result, kept for steps in which this rank has no gradient
        self.layout = None  # of its gradient, on all ranks (sparse.py); None: not known
        self.is_lent = False  # another optimizer reduces the parameter
        self.is_late = False  # its gradient may become complete several times in a backward: the end submits it
        self.has_result = False
        self.drop_view()

    def drop_view(self):
        """The gradient has no view any more."""
        self.view = None  # part of a bucket in which the gradient lies; never handed out, so that it stays as it is
        self.view_gradient = _NO_TENSOR  # the tensor that copy_into_view() made the gradient
        self.view_address = 0
        self.plan = None  # the plan to which the bucket belongs
        self.zeroed = False  # zero_grad() filled the view with zeros, and no gradient has arrived since

    def set_view(self, view):
        """Assigns a view, and copies the present gradient into it."""
        self.view, self.view_address = view, view.data_ptr()
        gradient = self.param.grad
        if gradient is not None and gradient.layout is torch.strided:
            self.copy_into_view(gradient)

    def is_in_view(self, gradient):
        return (
            self.view is not None
            and gradient is not None
            and gradient.layout is torch.strided
            and gradient.data_ptr() == self.view_address
        )

    def copy_into_view(self, gradient):
        """Copies the gradient into the view. The view becomes the parameter's gradient and is returned."""
        with torch.no_grad():
            self.view.copy_(gradient)
        self.view_gradient = self.param.grad = self.view.detach()
        return self.view_gradient

    def has_gradient(self, reached):
        """Whether this rank has a gradient. reached: a backward pass has reached the parameter in this round. Else the
        zeros of zero_grad() are no gradient, unless the user wrote to them."""
        gradient = self.param.grad
        if gradient is None:
            return False
        untouched = self.zeroed and not reached and self.is_in_view(gradient)
        return not untouched or bool(self.view.reshape(-1).view(torch.uint8).any())

    def has_made_gradient(self):
        """Whether there is a gradient, of a parameter that is reduced here and had none."""
        return self.param.grad is not None and self.param.requires_grad and not self.is_lent

    @property
    def has_result(self):
        """Whether the gradient is a result, if it is not zero; only with another op than Average."""
        return self._has_result

    @has_result.setter
    def has_result(self, value):
        self._has_result = value
        self._values = None  # whether it was not zero at each may_hold_result() since: a tensor of one bool

    def may_hold_result(self):
        """Whether the gradient is a result now, maybe changed or replaced by the user, and not zero. On a device it may
        be zero: holds_result() tells that later. Most gradients are not asked, and this does not wait for the device.
        """
        gradient = self.param.grad
        if self.has_result and gradient is None:
            self.has_result = False
        if not self.has_result:
            return False
        values = _has_values(gradient)
        self._values = values if self._values is None else self._values.to(values.device) & values
        return self.holds_result() if devices.is_host(gradient) else True

    def holds_result(self):
        """Whether the gradient was a result and not zero when may_hold_result() was called. Waits for its device."""
        if self._values is not None and not bool(self._values):
            self.has_result = False
        return self.has_result

    def check(self, gradient):
        """Raises the reason if the gradient cannot be reduced."""
        name = self.name
        if gradient.layout is torch.sparse_coo:
            raise ValueError(
                f"gradient {name} is sparse, and in a group: expected sparse_as_dense=True, or the parameter in no "
                "group"
            )
        if gradient.layout is not torch.strided:
            raise not_yet(f"gradient {name} is {gradient.layout}; this version reduces dense and COO gradients")
        if devices.type_of(gradient) != self.spec.device:
            raise ValueError(
                f"gradient {name} is on {gradient.device}; expected it where the parameter was when "
                "DistributedOptimizer was made: move the model first, and then make the optimizer"
            )
        if gradient.dtype is not self.dtype or gradient.shape != self.shape:
            raise ValueError(
                f"gradient {name} is {gradient.dtype} {list(gradient.shape)}; expected {self.dtype} "
                f"{list(self.shape)}, as the parameter was when DistributedOptimizer was made: convert the model "
                "first, and then make the optimizer"
            )


def _has_values(gradient):
    """Whether the gradient is not zero, as a tensor."""
    if gradient.layout is torch.sparse_coo:
        return gradient._values().any()
    return gradient.any()
