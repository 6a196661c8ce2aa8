"""A rank that waits for another can be interrupted, and says so to the others."""

import os
import signal
import sys
import threading

import claims
import torch

import horo.torch as hvd

hvd.init()
if hvd.rank() == 0:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        hvd.allreduce(torch.ones(1), name="never")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
    sys.exit("the wait ended by itself")
with claims.raises(hvd.PeerLost, "rank 0", "KeyboardInterrupt"):
    hvd.allreduce(torch.ones(1), name="other")
print("heard", flush=True)
