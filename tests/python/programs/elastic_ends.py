"""How ranks of an elastic job end: elastic_ends.py HOW. Rank 1 ends after the third of six allreduces."""

import os
import resource
import signal
import sys
import time

import numpy

import horo.numpy as hvd

HOW, ID = sys.argv[1], int(os.environ["HORO_RANK"])
if HOW == "dies early" and ID == 1:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.init()


def end():
    if HOW == "all raise, one later" and ID == 1:
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass
    if HOW == "raises" or HOW.startswith("all raise"):
        raise KeyError("bad sample 17")
    if HOW.startswith("exits"):
        sys.exit(int(HOW.split()[1]))
    if HOW == "leaves":
        hvd.shutdown()
        sys.exit(0)
    os.kill(os.getpid(), signal.SIGSTOP if HOW == "stops" else signal.SIGKILL)


for turn in range(6):
    if HOW == "dies, and rank 2 has no descriptors" and turn == 3 and ID == 2:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    if turn == 3 and (ID == 1 or HOW.startswith("all raise")):
        end()
    total = hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="x").item()
    if turn == 0 and ID == 0 and HOW == "until a signal":
        print("runs", flush=True)
    while HOW == "until a signal":
        hvd.allreduce(numpy.ones(1), name="y")
print("end", hvd.size(), total, flush=True)
