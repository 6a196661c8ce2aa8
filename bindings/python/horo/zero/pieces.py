"""Pieces: parts of parameters as the optimizer of the user gets them. A piece is a parameter in the memory of the whole
one, so that nothing is copied, and the script may do with the whole one what it does under plain horo."""

import torch

from horo.torch.sharding import flat, like

MASTER = "horo_master"  # the key of a master copy in the state of a parameter
SHORT = (torch.bfloat16, torch.float16)


def check_gradient(param, name):
    """Raises ValueError if a parameter has a sparse gradient."""
    if param.grad is not None and param.grad.layout is not torch.strided:
        raise ValueError(
            f"horo.zero: parameter {name} has a sparse gradient, which cannot be divided: "
            "expected partition='tensors' without masters, or sparse_as_dense=True"
        )


class Piece:
    """One Extent of a parameter. tensor: what the optimizer updates, and the key of its state."""

    def __init__(self, param, part, place, has_master):
        """place: the place in the layout to which the part belongs. has_master: it is a float32 copy."""
        self.param, self.part, self.place = param, part, place
        self.is_whole = part.end - part.begin == param.numel()
        self.has_master = has_master and param.dtype in SHORT
        view = self._of(param)
        self.tensor = torch.nn.Parameter(view.float() if self.has_master else view)
        self._address = param.data_ptr()

    def _of(self, whole):
        """This part of a tensor with the strides of the parameter."""
        return whole.detach() if self.is_whole else flat(whole)[self.part.begin : self.part.end]

    def begin(self):
        """Before a step: the present memory of the parameter and of its gradient, and the attributes that scripts give
        parameters."""
        vars(self.tensor).update(vars(self.param))
        view, gradient = self._of(self.param), self.param.grad
        if self.has_master:
            kept = self.tensor.detach()
            self.tensor.data = torch.where(kept.to(view.dtype) == view, kept, view.float())  # the script may write it
        elif self._address != self.param.data_ptr() or self.tensor.shape != view.shape:
            self.tensor.data, self._address = view, self.param.data_ptr()
        if gradient is None:
            self.tensor.grad = None
            return
        part = gradient if self.is_whole else self._of(like(self.param, gradient.detach()))
        self.tensor.grad = part.float() if self.has_master else part

    def end(self):
        """After a step."""
        self.tensor.grad = None
        if self.has_master:
            self._of(self.param).copy_(self.tensor.detach())

    def entry(self, state):
        """What there is to move of it: state, and the master copy."""
        master = {MASTER: self.tensor.detach()} if self.has_master else {}
        return {**state.get(self.tensor, {}), **master}

    def take(self, entry):
        """Its part of the state of the whole parameter, a dict; sets the master copy."""
        found = {}
        for key, value in entry.items():
            if isinstance(value, torch.Tensor):
                is_alike = value.shape == self.param.shape
                is_cut = not self.is_whole and is_alike
                value = (self._of(like(self.param, value)) if is_cut else value.detach()).clone()
                if self.has_master and is_alike and value.is_floating_point():  # state of a file, or of short floats
                    value = value.to(self.param.device, torch.float32)
                if value.device.type == self.param.device.type:  # what has come from another rank may be elsewhere
                    value = value.to(self.param.device)
            found[key] = value
        master = found.pop(MASTER, None)
        if self.has_master and master is not None:
            self.tensor.data = master
        return found
