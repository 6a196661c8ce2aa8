"""Buffers: the memory of tensors and arrays by address, for the transfer of a state. Imports neither torch nor NumPy.

A tensor that is contiguous in the memory of the host is a buffer as it is. Others (of a device, with strides) have a
copy in the host's memory as long as the transfer takes; at the rank that joins, finish() copies it into its place.
"""

import sys
import typing

REPLICATED, PER_RANK = "replicated", "per rank"  # kinds of a tensor in horo_state(); the third is Sharded
# PER_RANK: the ranks may differ in it, and a rank that joins gets that of the first rank.


class Sharded(typing.NamedTuple):
    """The kind of a tensor of which each rank has a part. shape: of the whole. intervals: (start, stop) of the rows of
    dimension 0 that this rank has. For checkpoints; a rank that joins does not get it in this version."""

    shape: tuple
    intervals: tuple


def sharded(shape, intervals):
    """The kind of a tensor of which this rank has the rows of these intervals."""
    return Sharded(tuple(shape), tuple(tuple(each) for each in intervals))


class Buffer(typing.NamedTuple):
    """Bytes of one tensor. keep: the object that owns the memory."""

    name: str
    form: str  # dtype and shape, such as "float32[16, 3]"
    address: int
    nbytes: int
    keep: object
    finish: object  # called at the rank that joins when the bytes are there
    of_first: bool = False  # the ranks may differ in it: the bytes of the first one that has the state are given
    is_copy: bool = False  # the memory is another than that of the tensor


def form_of(tensor, shape=None):
    """Dtype and shape as a text that torch and NumPy share. shape: of the whole, if the tensor is a part."""
    return f"{str(tensor.dtype).replace('torch.', '')}{list(tensor.shape if shape is None else shape)}"


def _nothing():
    pass


def check_has_values(name, tensor):
    """Raises ValueError for a tensor or array whose bytes are not its values."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        if tensor.dtype.hasobject:
            raise ValueError(f"horo.elastic.State: the array {name} has objects; expected numbers")
    elif tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        kind = f"{tensor.layout} on {tensor.device}"
        raise ValueError(f"horo.elastic.State: the tensor {name} is {kind}; expected values in memory")


def buffer_to_set(name, tensor, kind=REPLICATED):
    """buffer_of(); raises ValueError for an array that is read-only as well."""
    flags = getattr(tensor, "flags", None)
    if flags is not None and not flags.writeable:
        raise ValueError(f"horo.elastic.State: the array {name} is read-only, and cannot be set; expected a copy of it")
    return buffer_of(name, tensor, kind)


def buffer_of(name, tensor, kind=REPLICATED):
    """The Buffer of a tensor or array of this kind. Raises ValueError for a kind whose bytes are not its values."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return _of_array(name, tensor, kind)
    check_has_values(name, tensor)
    tensor = tensor.detach()
    is_plain = tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    memory = tensor if is_plain else tensor.resolve_conj().resolve_neg().cpu().contiguous()
    nbytes = memory.numel() * memory.element_size()

    def finish():
        if memory is not tensor:
            _place_into(tensor, memory, name)

    return Buffer(
        name, form_of(tensor), memory.data_ptr(), nbytes, memory, finish, kind == PER_RANK, memory is not tensor
    )


def _place_into(tensor, memory, name):
    """Of a tensor that was expanded, one element of the memory has several places of the tensor: it is set once."""
    once = tuple(slice(0, 1 if step == 0 else None) for step in tensor.stride())
    part = memory[once]
    tensor[once].copy_(part)
    if part.shape != memory.shape and not _bytes_of(part.expand_as(memory)).equal(_bytes_of(memory)):
        raise ValueError(f"horo.elastic.State: the tensor {name} is expanded, and cannot have the values to set")


def _bytes_of(tensor):
    return tensor.contiguous().view(-1).view(sys.modules["torch"].uint8)


def _of_array(name, array, kind):
    check_has_values(name, array)
    memory = array if array.flags.c_contiguous and array.ndim else array.copy(order="C")

    def finish():
        if memory is not array:
            array[...] = memory

    is_copy = memory is not array
    return Buffer(name, form_of(array), memory.ctypes.data, memory.nbytes, memory, finish, kind == PER_RANK, is_copy)


def empty(kind, form):
    """A tensor or array of this form, whose values are not set. kind: "torch" or "torch cuda" (of the present device),
    or "numpy"."""
    dtype, _, shape = form.partition("[")
    shape = [int(one) for one in shape.rstrip("]").split(",") if one.strip()]
    if kind == "numpy":
        import numpy

        return numpy.empty(shape, numpy.dtype(dtype))
    import torch

    return torch.empty(shape, dtype=getattr(torch, dtype), device=kind.partition(" ")[2] or "cpu")


def kind_of(tensor):
    """The first argument of empty()."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return "numpy"
    return "torch" if tensor.device.type == "cpu" else f"torch {tensor.device.type}"
