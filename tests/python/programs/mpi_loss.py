"""mpi_loss.py [ORDER]: rank 1 is killed in the middle of a job over MPI; the others do what needs no other, and end."""

import os
import signal
import sys

import numpy

import horo.numpy as hvd

hvd.init()
order = sys.argv[1] if len(sys.argv) > 1 else "canonical"
data = numpy.ones(1 << 20, numpy.float32)
hvd.allreduce(data, name="x", order=order)
try:
    hvd.barrier()  # who dies right behind it may still be missed in it by who leaves it last
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        hvd.allreduce(data, name="x", order=order)
except hvd.PeerLost as lost:
    print(f"lost {lost.origin}: {lost}", flush=True)
data += 1  # no message of MPI's writes here any more
assert (data == 2).all()
print("goes on", flush=True)
sys.exit(3)
