"""Specs: the properties of a collective that must be equal on all ranks. No framework is used here."""

import collections
import ctypes
import os
import sys
import warnings

from horo import _arguments, _native

Average, Sum, Adasum, Min, Max, Product = 0, 1, 2, 3, 4, 5
BitAnd, BitOr, BitXor = _native.BIT_AND, _native.BIT_OR, _native.BIT_XOR

# The element types by the names that NumPy (with ml_dtypes) and PyTorch share.
DTYPES = {
    "float64": _native.FLOAT64,
    "float32": _native.FLOAT32,
    "float16": _native.FLOAT16,
    "bfloat16": _native.BFLOAT16,
    "float8_e4m3fn": _native.FLOAT8_E4M3,
    "float8_e5m2": _native.FLOAT8_E5M2,
    "int8": _native.INT8,
    "int16": _native.INT16,
    "int32": _native.INT32,
    "int64": _native.INT64,
    "uint8": _native.UINT8,
    "uint16": _native.UINT16,
    "uint32": _native.UINT32,
    "uint64": _native.UINT64,
    "bool": _native.BOOL,
    "complex64": _native.COMPLEX64,
    "complex128": _native.COMPLEX128,
}
CODED = (_native.FLOAT64, _native.FLOAT32, _native.FLOAT16, _native.BFLOAT16)  # the types that codecs encode

_OPS = {
    "Average": Average,
    "Sum": Sum,
    "Adasum": Adasum,
    "Min": Min,
    "Max": Max,
    "Product": Product,
    "BitAnd": BitAnd,
    "BitOr": BitOr,
    "BitXor": BitXor,
}
_NUMBERS = frozenset(_OPS.values())
# torch.distributed.ReduceOp, whose members are equal to other numbers: there SUM is 0
_OF_TORCH = {
    "SUM": Sum,
    "AVG": Average,
    "PRODUCT": Product,
    "MIN": Min,
    "MAX": Max,
    "BAND": BitAnd,
    "BOR": BitOr,
    "BXOR": BitXor,
}

# Hashable, because a dict maps specs to keys. A plain tuple of the first fields is accepted too. splits: the row counts
# of a reduce_scatter by member, if the rows are not dealt evenly. priority: greater values run first. round_stream: see
# Session.begin_round. counts_known: the members exchange no sizes (horo_c.h). device: of the memory, a device_type.
Spec = collections.namedtuple(
    "Spec",
    "name kind op dtype shape order root stepwise prescale postscale set custom_op codec peer splits priority "
    "round_stream counts_known device",
    defaults=(_native.SUM, _native.FLOAT32, (), 0, 0, 0, 1.0, 1.0, 0, None, None, -1, (), 0, 0, 0, _native.HOST),
)


class CustomOp:
    """An operation of register_op, for op= of a reduction."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"CustomOp({self.name!r})"


def is_no_name(name):
    return name is None or name == ""


def name_bytes(name):
    """The name for the library; None if there is no name."""
    return None if is_no_name(name) else _arguments.encoded(name, "name")


def _text(value, what):
    return _arguments.encoded(value, what) if value else None


def fill(spec):
    """horo_tensor_spec, which keeps alive the texts and arrays that it points to."""
    spec = Spec(*spec)
    return _native.TensorSpec(
        struct_bytes=ctypes.sizeof(_native.TensorSpec),
        set=spec.set,
        kind=spec.kind,
        op=spec.op,
        dtype=spec.dtype,
        order=spec.order,
        root=spec.root,
        peer=spec.peer,
        stepwise=spec.stepwise,
        priority=spec.priority,
        prescale=spec.prescale,
        postscale=spec.postscale,
        name=name_bytes(spec.name),
        shape=(ctypes.c_int64 * len(spec.shape))(*spec.shape),
        dims=len(spec.shape),
        codec=_text(spec.codec, "codec"),
        custom_op=_text(spec.custom_op, "op"),
        splits=(ctypes.c_int64 * len(spec.splits))(*spec.splits) if spec.splits else None,
        split_count=len(spec.splits),
        round_stream=spec.round_stream,
        counts_known=spec.counts_known,
        device_type=spec.device,
    )


def on_device(spec):
    """The spec of a tensor on a CUDA device."""
    return Spec(*spec)._replace(device=_native.CUDA)


def order_number(order):
    number = _native.ORDERS.get(order) if isinstance(order, str) else None
    if number is None:
        raise ValueError(f"order={order!r}; expected one of {', '.join(map(repr, _native.ORDERS))}")
    return number


def priority_number(priority):
    expected = "an integer of 32 bits; greater values run first"
    number = _arguments.whole(priority, "priority", expected, -(1 << 31))
    if number >= 1 << 31:
        raise ValueError(f"priority={priority!r}; expected {expected}")
    return number


_AVERAGE_IS_OLD = "Parameter `average` has been replaced with `op`: op=Average or op=Sum"
_HORO = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _depth_of_caller():
    """The stacklevel of a warning in choose_op() that names the first line outside of horo."""
    frame, depth = sys._getframe(2), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HORO):
        frame, depth = frame.f_back, depth + 1
    return depth


def choose_op(op, average=None):
    """The op that was chosen by `op` or by the older argument `average`. The default is Average."""
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if average is not None:
        chosen = Average if _flag_average(average) else Sum
        warnings.warn(_AVERAGE_IS_OLD, DeprecationWarning, stacklevel=_depth_of_caller())
        return chosen
    if op is None:
        return Average
    if (type(op) is int and op in _NUMBERS) or isinstance(op, CustomOp):
        return op
    if (number := _of_torch(op)) is not None:
        return number
    raise ValueError(
        f"op={op!r}; expected one of {', '.join(_OPS)}, one of torch.distributed.ReduceOp, or a result of register_op"
    )


def _flag_average(average):
    try:
        return _arguments.flag(average, "average")
    except ValueError as error:
        raise ValueError(f"{error}. An operation is given as op=, such as op=Sum") from None


def _of_torch(op):
    """The number of a member of torch.distributed.ReduceOp that has an equal here, else None."""
    if not type(op).__module__.startswith("torch."):
        return None
    return _OF_TORCH.get(getattr(getattr(op, "op", op), "name", None))


def op_name(op):
    """Of an op that choose_op() returned."""
    return repr(op) if isinstance(op, CustomOp) else next(name for name, number in _OPS.items() if number == op)


def op_fields(op):
    """The op's number, and the name of a custom op or None."""
    return (_native.CUSTOM, op.name) if isinstance(op, CustomOp) else (op, None)


def rows_of(rows, size, rank):
    """The number of rows of a rank if they are dealt evenly: the first rows % size ranks have one row more."""
    return rows // size + (rank < rows % size)
