"""Prints this rank's place in the world after an all_reduce. Uses numpy, and torch only with the argument "torch".

Arguments: "torch" calls horo.torch.init(); "again" joins a second time.
"""

import importlib
import sys

import numpy

import horo
from horo import _default, _native
from horo._specs import Spec


def add_up():
    session = _default.session()
    values = numpy.full(3, horo.rank() + 1, numpy.float32)
    work = session.submit(Spec("x", _native.ALL_REDUCE, shape=(3,)), values.ctypes.data, values.ctypes.data, values)
    session.wait([work])
    assert values.tolist() == [horo.size() * (horo.size() + 1) / 2] * 3, values


init = importlib.import_module("horo.torch").init if "torch" in sys.argv else horo.init
for _ in range(2 if "again" in sys.argv else 1):
    init()
    add_up()
    place = horo.rank(), horo.size(), horo.local_rank(), horo.local_size(), horo.cross_rank(), horo.cross_size()
    horo.shutdown()
assert "torch" in sys.argv or "torch" not in sys.modules
sys.stdout.write(f"place {place}\n")  # one write, because ranks may share the launcher's pipe
