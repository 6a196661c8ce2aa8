"""Operations and codecs of the user, written in Python.

The library calls them from its own threads, which acquire the interpreter lock first: while another Python thread is
busy, that takes milliseconds per call. They are meant for experiments. Fast ones are written in C, against
horo_register_op and horo_register_codec of horo_c.h.
"""

import ctypes
import sys
import traceback

from horo import _default, _native, _specs
from horo._arguments import flag
from horo._compression import Codec

_FAILED = 1
_SIZES = {"float8_e4m3fn": 1, "float8_e5m2": 1, "bool": 1, "bfloat16": 2, "complex64": 8, "complex128": 16}
_NAMES = {number: name for name, number in _specs.DTYPES.items()}


def bytes_of(dtype):
    """The size of one element; dtype: its number."""
    name = _NAMES[dtype]
    return _SIZES.get(name) or int(name.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8


def _memory(address, nbytes):
    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B") if nbytes else memoryview(b"")


def _guarded(what, call):
    """No exception may cross the C ABI: it is printed here, and the library gets a failure status."""
    try:
        call()
    except BaseException:
        print(f"horo: {what} raised an exception, which ends the job:", file=sys.stderr)
        traceback.print_exc()
        return _FAILED
    return _native.OK


def register_op(name, combine, *, whole=False):
    """Registers an operation in this session, for op= of allreduce and reduce. All ranks make the same call.

    combine(accumulator, value, dtype) writes accumulator o value into accumulator, which holds the result of the lower
    ranks. The arguments are two memoryviews of bytes, valid only during the call, and the number of their dtype. It is
    applied to arbitrary pieces of tensors, in the canonical order; with whole=True, to whole tensors. horo's threads
    call it with the interpreter lock held, so it must not block; an exception ends the job.
    """

    def called(_, accumulator, value, count, dtype):
        nbytes = count * bytes_of(dtype)
        views = (_memory(accumulator, nbytes), _memory(value, nbytes))
        return _guarded(f"the operation {name!r}", lambda: combine(*views, dtype)) if count else _native.OK

    flags = _native.OP_WHOLE if flag(whole, "whole") else _native.OP_ASSOCIATIVE
    op = _native.Op(ctypes.sizeof(_native.Op), flags, _native.Combine(called), None)
    _default.session().register_op(name, op)
    return _specs.CustomOp(name)


def register_codec(name, codec):
    """Registers a codec in this session; returns the value for compression=. All ranks make the same call.

    codec has
      block                 the number of elements that are encoded together: tensors are split only between blocks
      wire_bytes(count)     the exact size of `count` encoded elements
      encode(values, residual, wire)   reads float32 values and fills wire
      decode(wire, values)  the inverse
      stateful              optional; if True, encode adds residual (float32, stored for each element of a tensor) to
                            the values, and stores the encoding error in it. Otherwise residual is None.
    Memory is passed as memoryviews, of float32 or bytes, valid only during the call. encode and decode must produce the
    same bits on all ranks. The rules for register_op's combine apply to them too.
    """

    def floats(address, count):
        return _memory(address, 4 * count).cast("f") if count else memoryview(b"")

    def encode(_, values, residual, wire, count):
        def call():
            kept = floats(residual, count) if residual else None
            codec.encode(floats(values, count), kept, _memory(wire, codec.wire_bytes(count)))

        return _guarded(f"the codec {name!r}", call)

    def decode(_, wire, values, count):
        views = (_memory(wire, codec.wire_bytes(count)), floats(values, count))
        return _guarded(f"the codec {name!r}", lambda: codec.decode(*views))

    made = _native.Codec(
        struct_bytes=ctypes.sizeof(_native.Codec),
        flags=_native.CODEC_STATEFUL if flag(getattr(codec, "stateful", False), "stateful") else 0,
        block=codec.block,
        wire_bytes=_native.WireBytes(lambda _, count: codec.wire_bytes(count)),
        encode=_native.Encode(encode),
        decode=_native.Decode(decode),
    )
    _default.session().register_codec(name, made)
    return Codec(name)
