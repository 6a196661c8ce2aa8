"""Collectives on NumPy arrays over the C ABI, for programs without torch."""

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
    """Submits an array as input and output; returns a work."""
    spec = Spec(name, kind, dtype=DTYPES[array.dtype.name], shape=array.shape, **options)
    data = array.ctypes.data if array.size else None
    return _default.session().submit(spec, data, data, array)


def finish(work):
    """Waits for a work; raises its error."""
    session = _default.session()
    try:
        session.wait([work])
    finally:
        session.release([work])


def reduce(name, value=1.0, shape=(3,), **options):
    """Sums an array of this value over all ranks, in place; returns the sum of one element."""
    array = numpy.full(shape, value, options.pop("dtype", numpy.float32))
    finish(submit(name, array, **options))
    assert (array == array.flat[0]).all(), array
    return float(array.flat[0])
