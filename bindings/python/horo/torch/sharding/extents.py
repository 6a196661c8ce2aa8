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


def place_of(device, tensors):
    """The device of the first of these tensors that is on one of this type; if none is, the current one of the type."""
    return next((one.device for one in tensors if one.device.type == device), device)


def joined(values, kind, tensors, out=None):
    """Flat tensors of one kind, one after the other, in `out` or in a new one. They may be on several devices: the new
    one is on that of the first, or on that of the tensors to which they belong if there is none."""
    if not values:
        return torch.empty(0, dtype=kind[0], device=place_of(kind[1], tensors)) if out is None else out
    if len(values) == 1 and out is not None:
        return out.copy_(values[0])
    device = values[0].device if out is None else out.device
    return torch.cat([one.to(device) for one in values], out=out)


def pack(tensors, extents, kind, out=None):
    """The values of these extents of tensors of one kind, one after the other, in `out` or in a new flat tensor, which
    is on the device of the first of them, or on that of the tensors if there are none."""
    return joined([flat(tensors[number])[begin:end] for number, begin, end in extents], kind, tensors, out)


def unpack(tensors, extents, values):
    """Writes values, a flat tensor, into these extents."""
    for (number, begin, end), part in zip(extents, values.split([end - begin for _, begin, end in extents])):
        flat(tensors[number])[begin:end].copy_(part)
