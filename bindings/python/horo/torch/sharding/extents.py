"""Extents: runs of elements of tensors, in the order of their memory."""

import typing

import torch


class Extent(typing.NamedTuple):
    """Elements of one of several tensors."""

    number: int  # of the tensor
    begin: int
    end: int


def kind_of(tensor):
    """(dtype, type of device): what tensors have in common whose parts one collective moves."""
    return tensor.dtype, tensor.device.type


def check_dense(tensor, name):
    """Raises ValueError if the elements of a tensor are not one run of memory. name: of it, in the message."""
    stride = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1 and step != stride:
            raise ValueError(
                f"{name}: the elements, of shape {list(tensor.shape)} and strides {list(tensor.stride())}, are not one "
                "run of memory; expected a dense tensor, as of contiguous()"
            )
        stride *= size


def flat(tensor):
    """The elements of a dense tensor in the order of its memory: a view, without a gradient."""
    tensor = tensor.detach()
    return tensor.view(-1) if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,))


def like(dense, tensor):
    """The values of a tensor with the strides of a dense tensor of the same shape, so that their flat() elements
    correspond. The tensor itself, if it has them."""
    if tensor.stride() == dense.stride() or tensor.numel() < 2:
        return tensor
    return torch.empty_like(dense, dtype=tensor.dtype, device=tensor.device, requires_grad=False).copy_(tensor)


def elements(extents):
    """The number of elements of all of them."""
    return sum(end - begin for _, begin, end in extents)


def cut(extents, first, last):
    """The elements first to last of a run of extents."""
    found, at = [], 0
    for number, begin, end in extents:
        low, high = max(first - at, 0), min(last - at, end - begin)
        if low < high:
            found.append(Extent(number, begin + low, begin + high))
        at += end - begin
    return found


def pack(tensors, extents, kind, out=None):
    """The values of these extents of tensors of one kind, one after the other, in `out` or in a new flat tensor."""
    values = [flat(tensors[number])[begin:end] for number, begin, end in extents]
    if out is not None and len(values) < 2:
        return out.copy_(values[0]) if values else out
    return torch.cat(values, out=out) if values else torch.empty(0, dtype=kind[0], device=kind[1])


def unpack(tensors, extents, values):
    """Writes values, a flat tensor, into these extents."""
    for (number, begin, end), part in zip(extents, values.split([end - begin for _, begin, end in extents])):
        flat(tensors[number])[begin:end].copy_(part)
