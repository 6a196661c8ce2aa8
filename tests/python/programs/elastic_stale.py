"""Calls that the ranks make before they can see a loss, but after the engine has installed the next epoch.

Rank 0 of four kills itself. Numbers of ranks in these calls are those that the script sees, so the calls fail like
calls that were in flight at the loss.
"""

import ctypes
import os
import signal
import sys

import numpy

import horo.numpy as hvd
from horo import _default, _native

hvd.init()
me = hvd.rank()
rows = numpy.full((12, 100), me, dtype=numpy.float32)
CALLS = {
    "broadcast": lambda: hvd.broadcast(rows, 1, name="x"),
    "reduce": lambda: hvd.reduce(rows, 1, name="x"),
    "gather": lambda: hvd.gather(rows, 1, name="x"),
    "reducescatter": lambda: hvd.reducescatter(rows, name="x"),
    "grouped": lambda: hvd.grouped_reducescatter([rows, rows], name="x"),
    "alltoall": lambda: hvd.alltoall(rows, name="x"),
    "scatter": lambda: hvd.scatter(rows, 1, name="x"),
    "set": lambda: hvd.add_process_set([1, 2]),
}
call = CALLS[sys.argv[1]]
if sys.argv[1] != "set":
    call()
    call()
hvd.barrier()
if me == 0:
    os.kill(os.getpid(), signal.SIGKILL)
world = _native.SetInfo(ctypes.sizeof(_native.SetInfo))
while world.size != 3:  # the engine's present world
    _native.quick.horo_get_set(_default.session().pointer, 0, world)
assert hvd.size() == 4
try:
    call()
    print("no error", flush=True)
except hvd.PeerLost as error:
    print("PeerLost", error.origin, hvd.size(), flush=True)
assert hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="after").item() == 3
