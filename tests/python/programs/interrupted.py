"""A rank that waits in the call of the argument can be interrupted; the other rank gets the reason."""

import os
import signal
import sys
import threading

import numpy
from claims_bare import raises

import horo.numpy as hvd

WAITS = {
    "allreduce": lambda: hvd.allreduce(numpy.ones(1), name="never"),
    "grouped": lambda: hvd.grouped_allreduce([numpy.ones(1), numpy.ones(2)], name="never"),
    "alltoall": lambda: hvd.alltoall(numpy.ones(2), name="never"),
    "recv": lambda: hvd.recv(numpy.ones(1), 1, name="never"),
    "join": hvd.join,
    "add_process_set": lambda: hvd.add_process_set([0]),
}

hvd.init()
if hvd.rank() == 0:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        WAITS[sys.argv[1]]()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
    sys.exit("the wait ended by itself")
with raises(hvd.PeerLost, "rank 0", "KeyboardInterrupt"):
    while True:  # succeeds without a rank that has joined
        hvd.allreduce(numpy.ones(1), name="other")
print("heard", flush=True)
