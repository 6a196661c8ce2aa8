"""Specs: what has to be equal on all ranks, and the words and numbers it is made of. Knows no framework."""

import collections
import ctypes
import operator

from horo import _native
from horo.errors import not_yet

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
CODED = (_native.FLOAT64, _native.FLOAT32, _native.FLOAT16, _native.BFLOAT16)  # what a codec takes

_OPS = {
    "Average": Average,
    "Sum": Sum,
    "Min": Min,
    "Max": Max,
    "Product": Product,
    "BitAnd": BitAnd,
    "BitOr": BitOr,
    "BitXor": BitXor,
}
_NUMBERS = frozenset(_OPS.values())

# Hashable, so that it finds its key. A plain tuple of the first fields will do. splits: reduce_scatter's rows for each
# member, where they are not dealt evenly. priority: what is greater goes first.
Spec = collections.namedtuple(
    "Spec",
    "name kind op dtype shape order root stepwise prescale postscale set custom_op codec peer splits priority",
    defaults=(_native.SUM, _native.FLOAT32, (), 0, 0, 0, 1.0, 1.0, 0, None, None, -1, (), 0),
)


class CustomOp:
    """An operation that register_op made; the op= of a reduction."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"CustomOp({self.name!r})"


def is_no_name(name):
    return name is None or name == ""


def name_bytes(name):
    """For the library; None where there is no name."""
    return None if is_no_name(name) else str(name).encode()


def _text(value):
    return value.encode() if value else None


def fill(spec):
    """horo_tensor_spec; it keeps the texts and arrays alive that it points to."""
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
        weight=1.0,
        prescale=spec.prescale,
        postscale=spec.postscale,
        name=name_bytes(spec.name),
        shape=(ctypes.c_int64 * len(spec.shape))(*spec.shape),
        dims=len(spec.shape),
        codec=_text(spec.codec),
        custom_op=_text(spec.custom_op),
        splits=(ctypes.c_int64 * len(spec.splits))(*spec.splits) if spec.splits else None,
        split_count=len(spec.splits),
    )


def order_number(order):
    number = _native.ORDERS.get(order)
    if number is None:
        raise ValueError(f"order={order!r}; expected one of {', '.join(map(repr, _native.ORDERS))}")
    return number


def priority_number(priority):
    try:
        number = operator.index(priority)
    except TypeError:
        number = None
    if number is None or not -(1 << 31) <= number < 1 << 31:
        raise ValueError(f"priority={priority!r}; expected a whole number of 32 bits, greater for what is to go first")
    return number


def choose_op(op, average):
    """Average by default; `average` is the older way to say it."""
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if op is None:
        return Average if average is None or average else Sum
    if op in _NUMBERS or isinstance(op, CustomOp):
        return op
    if op == Adasum:
        raise not_yet("op=Adasum")
    raise ValueError(f"op={op!r}; expected one of {', '.join(_OPS)}, or what register_op returned")


def op_fields(op):
    """The op's number and, of a custom one, its name."""
    return (_native.CUSTOM, op.name) if isinstance(op, CustomOp) else (op, None)


def rows_of(rows, size, rank):
    """How many of the rows fall to a rank where they are dealt evenly: the first rows % size ranks have one more."""
    return rows // size + (rank < rows % size)
