"""Rank 1 is killed in the middle of a job over MPI. The other ranks continue without collectives and exit."""

import os
import signal
import sys

import numpy

import horo.numpy as hvd

hvd.init()
data = numpy.ones(1 << 20, numpy.float32)
hvd.allreduce(data, name="x")
try:
    hvd.barrier()  # a death right after the barrier may still end it on a rank that has not left it
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        hvd.allreduce(data, name="x")
except hvd.PeerLost as lost:
    print(f"lost {lost.origin}: {lost}", flush=True)
data += 1  # MPI does not write to this memory after the loss
assert (data == 2).all()
print("continues", flush=True)
sys.exit(3)
