"""Collectives on torch tensors that return a handle at once, in place or into a new tensor; poll and synchronize.

A handle is an int. Its tensors are kept until synchronize(), or, if the handle is dropped, until the work has ended.
"""

import ctypes
import itertools

import torch

from horo import _default, _native
from horo._session import Spec
from horo.errors import HoroError, not_yet
from horo.torch import process_set as process_sets
from horo.torch.process_set import global_process_set

Average, Sum, Adasum, Min, Max, Product = 0, 1, 2, 3, 4, 5

DTYPES = {
    torch.float64: _native.FLOAT64,
    torch.float32: _native.FLOAT32,
    torch.float16: _native.FLOAT16,
    torch.bfloat16: _native.BFLOAT16,
    torch.int8: _native.INT8,
    torch.int32: _native.INT32,
    torch.int64: _native.INT64,
    torch.uint8: _native.UINT8,
    torch.bool: _native.BOOL,
}
_OPS = (Average, Sum, Min, Max, Product)


class _Pending:
    """What synchronize needs to know of a work."""

    __slots__ = ("session", "work", "finish", "rows", "what", "tensor", "address", "nbytes")

    def __init__(self, session, work, finish):
        self.session = session
        self.work = work
        self.finish = finish  # finish(pending) makes the result once the work has ended well
        self.rows = None  # allgather: how many rows came from each rank, once finished
        self.what = None  # a name for error texts
        self.tensor = None  # in flight
        self.address = self.nbytes = 0  # of the tensor, when it was submitted

    def watch(self, what, tensor, address):
        self.what, self.tensor, self.address, self.nbytes = what, tensor, address, tensor.nbytes

    def check_memory(self):
        """The tensor may have been written by nobody but us, and lies where it lay."""
        tensor = self.tensor
        if tensor is not None and (tensor.data_ptr() != self.address or tensor.nbytes != self.nbytes):
            raise HoroError(moved_text(self.what, self.nbytes, tensor.nbytes))

    def forget(self):
        self.session.release([self.work])


_pending = {}  # the handle's number: _Pending; not the handle, which has to notice when the caller drops it
_numbers = itertools.count(1)  # never used twice, whichever session the work is in


class Handle(int):
    """The int that the *_async calls return."""

    def __del__(self, pending=_pending):
        dropped = pending.pop(self, None)
        if dropped is not None:
            dropped.session.drop([dropped.work])


def moved_text(what, nbytes, nbytes_now):
    """Of a tensor whose memory is not what was submitted any more."""
    now = "it lies elsewhere now" if nbytes == nbytes_now else f"it has {nbytes_now} bytes now"
    return (
        f"{what} had {nbytes} bytes when rank {_default.rank()} submitted it, and {now}: its memory was resized or "
        "replaced while it was in flight. The result is lost on this rank, and memory that was given back meanwhile "
        "may have been written. Leave the tensor's size and storage alone until its handle is synchronized"
    )


def _start(spec, data_in, data_out, finish):
    session = _default.session()
    if data_in is None:
        address, keep = None, None
    else:
        # The storages too: a tensor that is given another one lets go of the old one, which is in flight.
        address, keep = data_in.data_ptr(), (data_in, data_in.untyped_storage(), data_out)
    work = session.submit(spec, address, None if data_out is None else data_out.data_ptr(), keep)
    number = next(_numbers)
    pending = _pending[number] = _Pending(session, work, finish)
    if data_in is not None:
        pending.watch(spec[0] or "an unnamed tensor", data_in, address)
    return Handle(number)


def _check(tensor, call, process_set):
    """The dtype's number; refuses what cannot be moved."""
    if process_set is not global_process_set:
        process_sets.check(process_set)
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"horo.{call}: expected a torch.Tensor, not a {type(tensor).__name__}")
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        names = ", ".join(str(name).removeprefix("torch.") for name in DTYPES)
        raise ValueError(f"horo.{call}: tensors of {tensor.dtype} are not supported; expected one of {names}")
    if not tensor.is_cpu:
        raise not_yet(f"horo.{call} of a tensor on {tensor.device}; this version moves CPU tensors")
    if tensor.layout is not torch.strided:
        raise not_yet(f"horo.{call} of a {tensor.layout} tensor; this version moves dense tensors")
    return dtype


def _check_rows(tensor, call):
    if tensor.dim() == 0:
        raise RuntimeError(
            f"horo.{call}: rank {_default.rank()} tried to {call} a rank-zero tensor; expected at least one dimension"
        )


def order_number(order):
    number = _native.ORDERS.get(order)
    if number is None:
        raise ValueError(f"order={order!r}; expected one of {', '.join(map(repr, _native.ORDERS))}")
    return number


def _empty(shape, dtype):
    return torch.empty(shape, dtype=dtype, device="cpu")


def choose_op(op, average):
    """Average by default; `average` is the older way to say it."""
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if op is None:
        return Average if average is None or average else Sum
    if op == Adasum:
        raise not_yet("op=Adasum")
    if op not in _OPS:
        raise ValueError(f"op={op!r}; expected one of Average, Sum, Min, Max, Product")
    return op


def _in_place(tensor, name):
    """Memory to reduce in, and how it becomes the tensor's value."""
    if tensor.is_contiguous():

        def finish(_):
            if not tensor.is_inference():  # such a tensor has no version
                torch.autograd.graph.increment_version(tensor)
            return tensor

        return tensor, finish
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
        raise ValueError(
            f"{name or 'an unnamed tensor'}: its elements share memory (an expand()ed tensor), so that they cannot be "
            "replaced; use allreduce_async or broadcast_async, which make a new tensor, or clone() it first"
        )
    buffer = tensor.detach().contiguous()

    def copy_back(_):
        with torch.no_grad():
            tensor.copy_(buffer)
        return tensor

    return buffer, copy_back


def _all_reduce(tensor, name, op, options, order):
    """A spec, as a plain tuple because this is the busiest path; options are both factors and the process set."""
    prescale, postscale, process_set = options
    dtype = _check(tensor, "allreduce", process_set)
    return (name, _native.ALL_REDUCE, op, dtype, tensor.shape, order_number(order), 0, 0, prescale, postscale)


def allreduce_async(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
    *,
    order="canonical",
):
    """Starts postscale * op over ranks of (prescale * tensor), into a new tensor. Average unless op says otherwise."""
    options = (prescale_factor, postscale_factor, process_set)
    spec = _all_reduce(tensor, name, choose_op(op, average), options, order)
    output = _empty(tensor.shape, tensor.dtype)
    return _start(spec, tensor.detach().contiguous(), output, lambda _: output)


def allreduce_async_(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
    *,
    order="canonical",
):
    """allreduce_async whose result replaces the tensor's values."""
    options = (prescale_factor, postscale_factor, process_set)
    spec = _all_reduce(tensor, name, choose_op(op, average), options, order)
    memory, finish = _in_place(tensor, name)
    return _start(spec, memory, memory, finish)


def allgather_async(tensor, name=None, process_set=global_process_set):
    """Starts a concatenation of all ranks' tensors along the first dimension, in which they may differ."""
    dtype = _check(tensor, "allgather", process_set)
    _check_rows(tensor, "allgather")
    shape = tuple(tensor.shape)

    def finish(pending):
        result = pending.session.result(pending.work)
        pending.rows = result.counts[: result.count_count]
        output = _empty((sum(pending.rows), *shape[1:]), tensor.dtype)
        if result.bytes:
            ctypes.memmove(output.data_ptr(), result.data, result.bytes)
        return output

    spec = Spec(name, _native.ALL_GATHER, dtype=dtype, shape=shape)
    return _start(spec, tensor.detach().contiguous(), None, finish)


def _broadcast(tensor, root_rank, name, call, process_set):
    dtype = _check(tensor, call, process_set)
    return Spec(name, _native.BROADCAST, dtype=dtype, shape=tuple(tensor.shape), root=root_rank)


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts sending root_rank's tensor to all ranks, into a new tensor."""
    spec = _broadcast(tensor, root_rank, name, "broadcast", process_set)
    output = _empty(tensor.shape, tensor.dtype)
    return _start(spec, tensor.detach().contiguous(), output, lambda _: output)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """broadcast_async whose result replaces the tensor's values."""
    spec = _broadcast(tensor, root_rank, name, "broadcast_", process_set)
    memory, finish = _in_place(tensor, name)
    return _start(spec, memory, memory, finish)


def rows_of(rows, size, rank):
    """How many rows reducescatter leaves to a rank: the first rows % size ranks have one more."""
    return rows // size + (rank < rows % size)


def reducescatter_async(
    tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0
):
    """Starts a reduction whose rows are dealt to the ranks, in order. Average or Sum."""
    if choose_op(op, None) not in (Average, Sum):
        raise ValueError(f"horo.reducescatter: op={op!r}; expected Average or Sum")
    dtype = _check(tensor, "reducescatter", process_set)
    _check_rows(tensor, "reducescatter")
    shape = tuple(tensor.shape)
    output = _empty((rows_of(shape[0], _default.size(), _default.rank()), *shape[1:]), tensor.dtype)
    spec = Spec(name, _native.REDUCE_SCATTER, op, dtype, shape, prescale=prescale_factor, postscale=postscale_factor)
    return _start(spec, tensor.detach().contiguous(), output, lambda _: output)


def poll(handle):
    """True once synchronize(handle) would not block."""
    pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"horo.poll: handle {handle} was not created or has been cleared")
    return pending.session.has_ended(pending.work)


def pending_of(handle):
    return _pending[handle]


def synchronize(handle):
    """Waits for a work and returns its tensor; None for a handle that is unknown or was waited for before."""
    pending = _pending.get(handle)
    if pending is None:
        return None
    try:
        pending.session.wait([pending.work])
        pending.check_memory()
        result = pending.finish(pending)
    except Exception:  # an interrupt is none: the work goes on, and may be waited for again
        _forget(handle)
        raise
    _forget(handle)
    return result


def _forget(handle):
    pending = _pending.pop(handle, None)
    if pending is not None:
        pending.forget()


def barrier(process_set=global_process_set):
    """Returns once all ranks have called it. Does not wait for other works."""
    process_sets.check(process_set)
    synchronize(_start(Spec(None, _native.BARRIER, dtype=_native.UINT8), None, None, lambda _: None))


def allreduce_(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
    *,
    order="canonical",
):
    """allreduce whose result replaces the tensor's values; no gradient passes through it."""
    options = (prescale_factor, postscale_factor, process_set)
    return synchronize(allreduce_async_(tensor, average, name, op, *options, order=order))


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """broadcast whose result replaces the tensor's values; no gradient passes through it."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))
