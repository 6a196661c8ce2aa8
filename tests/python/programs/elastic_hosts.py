"""Ranks 0 to 2 on a simulated host, 3 and 4 on another. elastic_hosts.py ID...: those end after the third allreduce."""

import os
import signal
import sys

import numpy

ID, ON_FIRST, SIZE = int(os.environ["HORO_RANK"]), 3, 5
IS_FIRST = ID < ON_FIRST
os.environ["HORO_HOST_ID"] = "first" if IS_FIRST else "second"
os.environ["HORO_LOCAL_RANK"] = str(ID if IS_FIRST else ID - ON_FIRST)
os.environ["HORO_LOCAL_SIZE"] = str(ON_FIRST if IS_FIRST else SIZE - ON_FIRST)

import horo.numpy as hvd  # noqa: E402

hvd.init()
was_equal = hvd.is_homogeneous()  # two hosts with 3 and 2 ranks
for turn in range(6):
    if turn == 3 and str(ID) in sys.argv[1:]:
        os.kill(os.getpid(), signal.SIGKILL)
    total = hvd.allreduce(numpy.full(100_000, 2.0**ID), op=hvd.Sum, name="x")
    assert (total == total[0]).all()
numbers = hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()
print(ID, int(total[0]), *numbers, not was_equal, hvd.is_homogeneous())
