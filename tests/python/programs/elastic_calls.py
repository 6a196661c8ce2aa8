"""What a death does to collectives outside of rounds: three of four ranks have submitted them when rank 1 kills itself.

Prints a line for each call: its name, and the result or the error.
"""

import os
import signal

import numpy

import horo.numpy as hvd

hvd.init()
me, was = hvd.rank(), hvd.rank()
mine = numpy.full(2, me, dtype=numpy.float32)
rows = numpy.full((12, 1), me, dtype=numpy.float32)
everybody, apart = hvd.add_process_set([0, 1, 3]), hvd.add_process_set([2, 3])

if me == 1:
    hvd.barrier()
    os.kill(os.getpid(), signal.SIGKILL)

calls = {
    "average": hvd.allreduce_async(mine, name="average"),
    "unnamed": hvd.allreduce_async(mine, op=hvd.Sum),
    "unit": hvd.grouped_allreduce_async([mine, mine], name="unit", op=hvd.Sum),
    "gathered": hvd.allgather_async(mine, name="gathered"),
    "of 0": hvd.broadcast_async(mine, 0, name="of 0"),
    "of 1": hvd.broadcast_async(mine, 1, name="of 1"),
    "of 2": hvd.broadcast_async(mine, 2, name="of 2"),
    "at 0": hvd.reduce_async(mine, 0, name="at 0"),
    "at 3": hvd.gather_async(mine, 3, name="at 3"),
    "dealt": hvd.reducescatter_async(rows, name="dealt", op=hvd.Sum),
    "exchanged": hvd.alltoall_async(rows, name="exchanged"),
    "from 0": hvd.scatter_async(rows, 0, name="from 0"),
    "in a set that lost one": None,
    "in a set": None,
}
if everybody.included():
    calls["in a set that lost one"] = hvd.allreduce_async(mine, process_set=everybody, name="a")
if apart.included():
    calls["in a set"] = hvd.reducescatter_async(rows, process_set=apart, name="b", op=hvd.Sum)
if me == 0:
    calls["to 1"] = hvd.send_async(mine, 1)
assert (hvd.rank(), hvd.size()) == (was, 4)
hvd.barrier()

for name, handle in calls.items():
    if handle is None:
        continue
    try:
        result = hvd.synchronize(handle)
        parts = result if isinstance(result, list) else [result]
        print(name, "=", *("nothing" if part is None else part.ravel()[:4].tolist() for part in parts))
    except hvd.PeerLost as error:
        print(name, ": PeerLost", error, error.origin)
    if name == "average":
        assert hvd.size() == 3 and hvd.rank() == (was if was == 0 else was - 1) and hvd.local_rank() == was
hvd.barrier()
