"""A training step without a framework: arrays are averaged over all ranks, as by an optimizer."""

import numpy

from horo import _native
from horo._specs import Spec


def average(session, arrays):
    """Averages the arrays in place; returns after all of them are done and the step has ended."""
    works = []
    for number, array in enumerate(arrays):
        spec = Spec(f"g{number}", _native.ALL_REDUCE, _native.AVERAGE, _native.FLOAT32, array.shape, 0, 0, 1)
        works.append(session.submit(spec, array.ctypes.data, array.ctypes.data, array))
    session.wait(works)
    session.release(works)
    session.step_end()


def ones(*sizes):
    return [numpy.ones(size, numpy.float32) for size in sizes]
