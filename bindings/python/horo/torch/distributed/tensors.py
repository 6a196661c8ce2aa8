"""Tensors, reduce operations and options of torch.distributed in the terms of horo."""

import torch
from torch.distributed import ReduceOp

from horo import _native
from horo.torch import devices
from horo.torch.arrays import DTYPES, in_one_piece, lies_plainly

_OPS = {
    ReduceOp.RedOpType.SUM: _native.SUM,
    ReduceOp.RedOpType.AVG: _native.AVERAGE,
    ReduceOp.RedOpType.PRODUCT: _native.PRODUCT,
    ReduceOp.RedOpType.MIN: _native.MIN,
    ReduceOp.RedOpType.MAX: _native.MAX,
    ReduceOp.RedOpType.BAND: _native.BIT_AND,
    ReduceOp.RedOpType.BOR: _native.BIT_OR,
    ReduceOp.RedOpType.BXOR: _native.BIT_XOR,
    ReduceOp.RedOpType.PREMUL_SUM: _native.SUM,
}


def reduction(op):
    """The number of a reduce operation, and the factor of the values: that of PREMUL_SUM, else 1."""
    kind = op if isinstance(op, ReduceOp.RedOpType) else op.op
    number = _OPS.get(kind)
    if number is None:
        raise NotImplementedError(f"not yet: {kind} of the backend horo; expected one of {', '.join(map(str, _OPS))}")
    return number, float(op.__getstate__()[1]) if kind == ReduceOp.RedOpType.PREMUL_SUM else 1.0


def check(tensor, call):
    """Raises the reason if the tensor cannot be sent."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{call}: expected a torch.Tensor, not a {type(tensor).__name__}")
    if not devices.is_known(tensor):
        raise NotImplementedError(
            f"not yet: {call} of a tensor on {tensor.device}; the backend horo moves tensors of CPUs and CUDA devices"
        )
    if tensor.layout is not torch.strided:
        raise NotImplementedError(f"not yet: {call} of a {tensor.layout} tensor; the backend horo moves dense tensors")
    return tensor


def single(tensors, call):
    """The tensor of a list of one, or the given tensor."""
    if isinstance(tensors, torch.Tensor):
        return check(tensors, call)
    if len(tensors) != 1:
        raise ValueError(f"{call}: {len(tensors)} tensors in one call; expected one for each rank")
    return check(tensors[0], call)


def single_list(lists, call):
    """The list of a list of one list, or the given list."""
    if lists and isinstance(lists[0], torch.Tensor):
        return [check(tensor, call) for tensor in lists]
    if len(lists) != 1:
        raise ValueError(f"{call}: {len(lists)} lists in one call; expected one for each rank")
    return [check(tensor, call) for tensor in lists[0]]


def dtype_of(tensor):
    """The number of the dtype, and how many elements of it the tensor has. A dtype that horo cannot reduce is moved as
    bytes."""
    number = DTYPES.get(tensor.dtype)
    return (_native.UINT8, tensor.nbytes) if number is None else (number, tensor.numel())


def reduced_dtype_of(tensor, call):
    """dtype_of() for a reduction. Raises ValueError if horo cannot reduce the dtype."""
    number = DTYPES.get(tensor.dtype)
    if number is None:
        names = ", ".join(str(name).removeprefix("torch.") for name in DTYPES)
        raise ValueError(f"{call}: tensors of {tensor.dtype} cannot be reduced; expected one of {names}")
    return number, tensor.numel()


def readable(tensor):
    """Contiguous memory with the tensor's values: its own, or a copy."""
    return in_one_piece(tensor.detach())


def writable(tensor):
    """Contiguous memory for a new value of the tensor, and a function that leaves the value in the tensor, or None if
    the memory is the tensor's own."""
    tensor = tensor.detach()
    if lies_plainly(tensor):
        return tensor, None
    buffer = in_one_piece(tensor)
    if buffer.data_ptr() == tensor.data_ptr() and tensor.numel():
        buffer = buffer.clone(memory_format=torch.contiguous_format)
    return buffer, lambda: put(tensor, buffer)


def put(tensor, value):
    """Replaces the tensor's values. A tensor that was made in inference mode can be written there alone."""
    with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
        tensor.copy_(value.view(tensor.shape))
    devices.hold(value)
    devices.hold(tensor)


def joined(tensors):
    """One contiguous tensor, flat, with the elements of all: their own memory, if they lie one behind the other."""
    whole = in_a_row(tensors)
    if whole is not None:
        return whole
    with torch.no_grad():
        return torch.cat([readable(tensor).reshape(-1) for tensor in tensors])


def in_a_row(tensors):
    """A flat view of tensors that lie one behind the other in one storage, or None."""
    first = tensors[0]
    if not lies_plainly(first) or any(each.dtype != first.dtype for each in tensors):
        return None
    storage, next_address = first.untyped_storage(), first.data_ptr()
    for tensor in tensors:
        if not lies_plainly(tensor) or tensor.data_ptr() != next_address:
            return None
        if tensor.untyped_storage().data_ptr() != storage.data_ptr():
            return None
        next_address += tensor.nbytes
    count = sum(tensor.numel() for tensor in tensors)
    return first.detach().as_strided((count,), (1,), first.storage_offset())


def room_for(tensors):
    """Flat memory for the values of several tensors, and a function that leaves them there, or None."""
    whole = in_a_row(tensors)
    if whole is not None:
        return whole, None
    first = tensors[0]
    buffer = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=first.dtype, device=first.device)

    def spread():
        for tensor, part in zip(tensors, buffer.split([tensor.numel() for tensor in tensors])):
            put(tensor.detach(), part)

    return buffer, spread
