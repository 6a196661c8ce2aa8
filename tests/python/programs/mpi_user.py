"""A program that starts and ends MPI itself, as mpi4py does: mpi_user.py LEVEL [loss]

LEVEL is the number of MPI_THREAD_SINGLE, FUNNELED, SERIALIZED or MULTIPLE. With "loss" rank 1 dies, and the others
end MPI nevertheless.
"""

import ctypes
import os
import signal
import sys

import numpy

import horo.numpy as hvd

mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
provided = ctypes.c_int()
assert mpi.MPI_Init_thread(None, None, int(sys.argv[1]), ctypes.byref(provided)) == 0

try:
    hvd.init()
except ValueError as refused:
    print(f"refused: {refused}", flush=True)
    mpi.MPI_Finalize()
    sys.exit(0)
try:
    hvd.barrier()  # its last messages may still be in flight when rank 1 dies
    if "loss" in sys.argv and hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    print("sum", hvd.allreduce(numpy.ones(3), op=hvd.Sum, name="x").tolist(), flush=True)
    hvd.shutdown()
except hvd.PeerLost as lost:
    print(f"lost {lost.origin}: {lost}", flush=True)
mpi.MPI_Finalize()
print("finalized", flush=True)
