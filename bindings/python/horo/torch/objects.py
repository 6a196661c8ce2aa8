"""Objects as bytes, and states as bytes with their tensors apart.

Objects are pickled, and sent only between ranks that have authenticated each other. Only this file and run() unpickle
data.
"""

import ctypes
import dataclasses
import io
import pickle

import torch

from horo.torch.arrays import DTYPES, lies_plainly


def to_bytes(obj):
    """The pickled object as a tensor, without a copy of the bytes."""
    file = io.BytesIO()
    try:
        pickle.dump(obj, file)
    except Exception as error:
        raise TypeError(
            f"a {type(obj).__name__} cannot be sent to other ranks, as it cannot be pickled: {error}. Send lists, "
            "dicts, arrays, state_dict()s, or functions and classes of modules"
        ) from error
    return torch.frombuffer(file.getbuffer(), dtype=torch.uint8)


def from_bytes(tensor):
    """The object. Reads the tensor's memory itself, of any size."""
    memory = (ctypes.c_char * tensor.numel()).from_address(tensor.data_ptr())  # valid as long as the tensor
    return pickle.loads(memoryview(memory).cast("B"))


@dataclasses.dataclass
class _TensorLike:
    """What a rank needs to know of a tensor before it arrives."""

    shape: tuple
    dtype: torch.dtype
    device: str  # its type
    is_parameter: bool
    requires_grad: bool

    def empty(self, near):
        # A rank without such a device takes part: all ranks get a Mismatch that names the device.
        device = self.device if self.device == "cpu" or torch.cuda.is_available() else "cpu"
        if near is not None and near.type == device:
            device = near
        tensor = torch.empty(self.shape, dtype=self.dtype, device=device)
        return torch.nn.Parameter(tensor, False) if self.is_parameter else tensor


class _Packer(pickle.Pickler):
    """Leaves a number in the place of each tensor. A tensor that is in two places is one tensor again afterwards."""

    def __init__(self, file):
        super().__init__(file)
        self.tensors = []
        self._places = {}  # id of a tensor: its place in the list, which keeps it alive

    def persistent_id(self, obj):
        if type(obj) not in (torch.Tensor, torch.nn.Parameter) or obj.dtype not in DTYPES or not lies_plainly(obj):
            return None  # tensors of other kinds are pickled
        if id(obj) not in self._places:
            self._places[id(obj)] = len(self.tensors)
            self.tensors.append(obj)
        return self._places[id(obj)]


class _Unpacker(pickle.Unpickler):
    def __init__(self, file, tensors):
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid):
        return self._tensors[pid]


def pack(state):
    """(outline, tensors): the tensors of the state, and all that the others need to put them in their places."""
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(state)
    likes = [
        _TensorLike(tuple(each.shape), each.dtype, each.device.type, type(each) is not torch.Tensor, each.requires_grad)
        for each in packer.tensors
    ]
    return (file.getvalue(), likes), packer.tensors


def room(outline, near=None):
    """Empty tensors for the values, each on the device `near` if that is of the type of its own, else on the current
    device of its type. near: that of the parameters whose state it is, which may be another than the current one."""
    return [like.empty(near) for like in outline[1]]


def unpack(outline, tensors):
    """The state, with these tensors. All else has the types and the references to each other that it had."""
    packed, likes = outline
    for tensor, like in zip(tensors, likes):
        tensor.requires_grad_(like.requires_grad)
    return _Unpacker(io.BytesIO(packed), tensors).load()
