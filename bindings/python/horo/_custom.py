"""Operations and codecs of the caller's own, written in Python.

The library calls them from its own threads, which take the interpreter lock for it: while another Python thread is
busy that takes milliseconds each time. They are for trying things out; what has to be fast is written in C, against
horo_register_op and horo_register_codec of horo_c.h.
"""

import ctypes
import sys
import traceback

from horo import _default, _native, _specs
from horo._compression import Codec

_FAILED = 1
_SIZES = {"float8_e4m3fn": 1, "float8_e5m2": 1, "bool": 1, "bfloat16": 2, "complex64": 8, "complex128": 16}
_NAMES = {number: name for name, number in _specs.DTYPES.items()}


def bytes_of(dtype):
    """Of one element; dtype: its number."""
    name = _NAMES[dtype]
    return _SIZES.get(name) or int(name.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8


def _memory(address, nbytes):
    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B") if nbytes else memoryview(b"")


def _guarded(what, call):
    """No exception may cross the C ABI: it is shown here, and the library hears that the call failed."""
    try:
        call()
    except BaseException:
        print(f"horo: {what} raised an exception, which ends the job:", file=sys.stderr)
        traceback.print_exc()
        return _FAILED
    return _native.OK


def register_op(name, combine, *, whole=False):
    """Makes an operation known to this session, for op= of allreduce and reduce; all ranks do so alike.

    combine(accumulator, value, dtype) writes accumulator o value into accumulator, which holds the lower ranks: two
    memoryviews of bytes, which are good during the call alone, and the number of their dtype. It is applied to any
    pieces of tensors, in the canonical order, unless whole=True says that it needs whole tensors. Called by horo's
    threads under the interpreter lock, so it must wait for nothing; an exception ends the job.
    """

    def called(_, accumulator, value, count, dtype):
        nbytes = count * bytes_of(dtype)
        views = (_memory(accumulator, nbytes), _memory(value, nbytes))
        return _guarded(f"the operation {name!r}", lambda: combine(*views, dtype)) if count else _native.OK

    flags = _native.OP_WHOLE if whole else _native.OP_ASSOCIATIVE
    op = _native.Op(ctypes.sizeof(_native.Op), flags, _native.Combine(called), None)
    _default.session().register_op(name, op)
    return _specs.CustomOp(name)


def register_codec(name, codec):
    """Makes a codec known to this session, for compression=; all ranks do so alike. Returns what to pass there.

    codec has
      block                 elements that are coded together: tensors are cut between blocks alone
      wire_bytes(count)     the size of so many coded elements, exactly
      encode(values, residual, wire)   reads float32 values and fills wire
      decode(wire, values)  the way back
      stateful              optional; True: encode adds residual (float32, kept for each element of a tensor) to the
                            values, and leaves in it what the wire lost. Else residual is None.
    Memory comes as memoryviews, of float32 or bytes, which are good during the call alone. encode and decode have to
    give the same bits on all ranks. They are called as register_op's combine is.
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
        flags=_native.CODEC_STATEFUL if getattr(codec, "stateful", False) else 0,
        block=codec.block,
        wire_bytes=_native.WireBytes(lambda _, count: codec.wire_bytes(count)),
        encode=_native.Encode(encode),
        decode=_native.Decode(decode),
    )
    _default.session().register_codec(name, made)
    return Codec(name)
