"""Rank 1 is killed in the middle of a job over MPI; the others go on with what needs no other rank, and end."""

import os
import signal
import sys

import numpy

import horo.numpy as hvd

hvd.init()
data = numpy.ones(1 << 20, numpy.float32)
hvd.allreduce(data, name="x")
hvd.barrier()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        hvd.allreduce(data, name="x")
except hvd.PeerLost as lost:
    print(f"lost {lost.origin}: {lost}", flush=True)
data += 1  # no message of MPI's writes here any more
assert (data == 2).all()
print("goes on", flush=True)
sys.exit(3)
