"""Collectives on NumPy arrays over the C ABI, for programs that need no torch."""

import numpy

from horo import _default, _native
from horo._specs import Spec

DTYPES = {
    "float32": _native.FLOAT32,
    "float64": _native.FLOAT64,
    "int32": _native.INT32,
    "int64": _native.INT64,
}


def submit(name, array, kind=_native.ALL_REDUCE, **options):
    """A work; the array is input and output."""
    spec = Spec(name, kind, dtype=DTYPES[array.dtype.name], shape=array.shape, **options)
    data = array.ctypes.data if array.size else None
    return _default.session().submit(spec, data, data, array)


def finish(work):
    """Waits for it; raises what it ended with."""
    session = _default.session()
    try:
        session.wait([work])
    finally:
        session.release([work])


def reduce(name, value=1.0, shape=(3,), **options):
    """The sum over all ranks of an array of this value, in place, as a number."""
    array = numpy.full(shape, value, options.pop("dtype", numpy.float32))
    finish(submit(name, array, **options))
    assert (array == array.flat[0]).all(), array
    return float(array.flat[0])
