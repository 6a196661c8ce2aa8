"""Buffers: the memory of tensors and arrays by address, for the transfer of a state. Imports neither torch nor NumPy.

A tensor that is contiguous in the memory of the host is a buffer as it is. Others (of a device, with strides) have a
copy in the host's memory as long as the transfer takes; at the rank that joins, finish() copies it into its place.
"""

import contextlib
import math
import sys
import typing

STATE = "horo.elastic.State"  # what messages begin with, unless the script calls something else

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
    check: object = None  # of an expanded tensor: check(what) raises ValueError if it cannot have the bytes


def form_of(tensor, shape=None):
    """Dtype and shape as a text that torch and NumPy share. shape: of the whole, if the tensor is a part."""
    sizes = ["nested"] if _is_nested(tensor) else tensor.shape if shape is None else shape
    return form_as_text(str(tensor.dtype).replace("torch.", ""), sizes)


def form_as_text(dtype, shape):
    """form_of() of a tensor of this dtype, a text, and shape."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


def _nothing():
    pass


def _is_of_torch(tensor):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def _is_nested(tensor):
    return _is_of_torch(tensor) and tensor.is_nested


def check_has_values(name, tensor, what=STATE):
    """Raises ValueError for a tensor or array whose bytes are not its values. what: the beginning of the message."""
    if not _is_of_torch(tensor):
        if tensor.dtype.hasobject:
            raise ValueError(f"{what}: the array {name} has objects; expected numbers")
        return
    is_plain = tensor.layout is sys.modules["torch"].strided and not tensor.is_nested
    if not is_plain or tensor.is_quantized or tensor.is_meta:
        word = "nested, " if tensor.is_nested else "quantized, " if tensor.is_quantized else ""
        kind = f"{word}{tensor.layout} on {tensor.device}"
        raise ValueError(f"{what}: the tensor {name} is {kind}; expected values in memory")


def buffer_to_set(name, tensor, kind=REPLICATED, what=STATE):
    """buffer_of(); raises ValueError as well for an array that is read-only, and for elements that share memory. An
    expanded tensor can be set, to values that are as often in it: the caller calls check() of all buffers that have it
    before finish() of the first."""
    check_has_values(name, tensor, what)
    noun = "tensor" if _is_of_torch(tensor) else "array"
    if noun == "array" and not tensor.flags.writeable:
        raise ValueError(f"{what}: the array {name} is read-only, and cannot be set; expected a copy of it")
    steps, width = _steps_of(tensor)
    if _overlap(tuple(tensor.shape), steps, width):
        raise ValueError(
            f"{what}: elements of the {noun} {name}, of shape {list(tensor.shape)} and strides {list(steps)}, share "
            "memory, so that it cannot be set; expected a copy of it"
        )
    return buffer_of(name, tensor, kind, what)


def _steps_of(tensor):
    """The strides, and how many of their units an element takes."""
    return (tensor.stride(), 1) if _is_of_torch(tensor) else (tensor.strides, tensor.itemsize)


def _is_expanded(tensor):
    return any(step == 0 and size > 1 for step, size in zip(_steps_of(tensor)[0], tensor.shape))


def _overlap(shape, steps, width):
    """Whether elements share memory, but for those of dimensions with the stride 0."""
    dims = sorted((abs(step), size) for step, size in zip(steps, shape) if size > 1 and step != 0)
    if 0 in shape or not dims:
        return False
    ends = [width]
    for step, size in dims:
        ends.append(ends[-1] + step * (size - 1))
    if all(step >= end for (step, _), end in zip(dims, ends)):
        return False
    count = math.prod(size for _, size in dims)
    if count * width > ends[-1]:
        return True
    places = [0]  # the dimensions interleave
    for step, size in dims:
        places = [place + step * i for place in places for i in range(size)]
    places.sort()
    return any(after - before < width for before, after in zip(places, places[1:]))


def buffer_of(name, tensor, kind=REPLICATED, what=STATE):
    """The Buffer of a tensor or array of this kind. Raises ValueError for a kind whose bytes are not its values."""
    check_has_values(name, tensor, what)
    if not _is_of_torch(tensor):
        return _of_array(name, tensor, kind)
    tensor = tensor.detach()
    is_plain = tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    memory = tensor if is_plain else tensor.resolve_conj().resolve_neg().cpu().contiguous()
    form, nbytes = form_of(tensor), memory.numel() * memory.element_size()
    if memory is tensor:
        return Buffer(name, form, memory.data_ptr(), nbytes, memory, _nothing, kind == PER_RANK)

    def finish():
        once = _once(tensor)
        # A tensor that was made in inference mode can be changed there alone.
        with sys.modules["torch"].inference_mode() if tensor.is_inference() else contextlib.nullcontext():
            tensor[once].copy_(memory[once])

    check = _check_of(name, tensor, memory)
    return Buffer(name, form, memory.data_ptr(), nbytes, memory, finish, kind == PER_RANK, True, check)


def _of_array(name, array, kind):
    memory = array if array.flags.c_contiguous and array.ndim else array.copy(order="C")
    form = form_of(array)
    if memory is array:
        return Buffer(name, form, memory.ctypes.data, memory.nbytes, memory, _nothing, kind == PER_RANK)

    def finish():
        once = _once(array)
        array[once] = memory[once]

    check = _check_of(name, array, memory)
    return Buffer(name, form, memory.ctypes.data, memory.nbytes, memory, finish, kind == PER_RANK, True, check)


def _once(tensor):
    """The slices that have each element of the memory of an expanded tensor once."""
    return tuple(slice(0, 1 if step == 0 else None) for step in _steps_of(tensor)[0])


def _check_of(name, tensor, memory):
    """Of a tensor that is expanded, one element of the memory has several places in it."""
    if not _is_expanded(tensor):
        return None

    def check(what=STATE):
        part, noun = memory[_once(tensor)], "tensor"
        if _is_of_torch(tensor):
            fits = _bytes_of(part.expand_as(memory)).equal(_bytes_of(memory))
        else:
            noun = "array"
            fits = sys.modules["numpy"].broadcast_to(part, memory.shape).tobytes() == memory.tobytes()
        if not fits:
            raise ValueError(f"{what}: the {noun} {name} is expanded, and cannot have the values to set")

    return check


def finish(buffers, what=STATE):
    """The bytes are there: puts those of copies into the tensors. Raises ValueError, before the first of these is set,
    if one of them cannot have its bytes."""
    for buffer in buffers:
        if buffer.check is not None:
            buffer.check(what)
    for buffer in buffers:
        buffer.finish()


def _bytes_of(tensor):
    return tensor.contiguous().view(-1).view(sys.modules["torch"].uint8)


def empty(kind, form):
    """A tensor or array of this form, whose values are not set. kind: "torch" or "torch cuda" (of the present device,
    from which load_exactly() takes the state of an optimizer to that of its parameters, or of the host where this
    process has none of these), or "numpy"."""
    dtype, _, shape = form.partition("[")
    shape = [int(one) for one in shape.rstrip("]").split(",") if one.strip()]
    if kind == "numpy":
        import numpy

        return numpy.empty(shape, numpy.dtype(dtype))
    import torch

    device = kind.partition(" ")[2] or "cpu"
    there = getattr(torch, device, None)  # torch.cuda; "cpu" is always there
    if hasattr(there, "is_available") and not there.is_available():
        device = "cpu"
    return torch.empty(shape, dtype=getattr(torch, dtype), device=device)


def kind_of(tensor):
    """The first argument of empty()."""
    if not _is_of_torch(tensor):
        return "numpy"
    return "torch" if tensor.device.type == "cpu" else f"torch {tensor.device.type}"
