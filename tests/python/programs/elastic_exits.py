"""Ranks of an elastic job that end in different ways: elastic_exits.py WAY..., one for each rank. A rank that ends
early does so at the fourth of eight allreduces."""

import atexit
import os
import signal
import sys
import time

RANK = int(os.environ["HORO_RANK"])
WAY, _, DETAIL = sys.argv[1 + RANK].partition(" ")
CODE = int(DETAIL) if DETAIL.isdigit() else DETAIL or None
EARLY, TURNS = 3, 8


@atexit.register  # before horo's own function, so it is called after that one
def after_leaving():
    if WAY == "killed-after-exit":
        os.kill(os.getpid(), signal.SIGKILL)
    if WAY == "slow-exit":
        time.sleep(1.5)


if WAY == "before-init":
    sys.exit(CODE)

import numpy  # noqa: E402

import horo.numpy as hvd  # noqa: E402

hvd.init()


def end_early():
    if WAY in ("exit", "slow-exit", "killed-after-exit"):
        sys.exit(CODE)
    if WAY == "_exit":
        os._exit(CODE)
    if WAY == "raise":
        raise ValueError(CODE)
    if WAY == "shutdown-exit":
        hvd.shutdown()
        sys.exit(CODE)


for turn in range(TURNS):
    if turn == (EARLY + 2 if WAY == "later" else EARLY):
        end_early()
        if WAY == "later":
            sys.exit(CODE)
    total = hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="x").item()
print("end", hvd.size(), total, flush=True)
if WAY == "end-shutdown-kill":
    hvd.shutdown()
    os.kill(os.getpid(), signal.SIGKILL)
if WAY == "end-shutdown-exit":
    hvd.shutdown()
    sys.exit(CODE)
if WAY == "end-exit":
    sys.exit(CODE)
if WAY == "end-atexit":
    atexit.register(lambda: 1 / 0)
if WAY == "end-raise":
    raise ValueError(CODE)
