"""Ranks that are killed, crash or stop: the other ranks get an error that names them."""

import os
import pathlib
import resource
import signal
import time

import torch
from table import ENDS, on_ranks

import horo.torch as hvd

SECTION = "Ranks that die, stop or leave"
NEXT = "Restart the job from its last checkpoint"


def end_by(number):
    hvd.barrier()
    if hvd.rank() == 1:
        os.kill(os.getpid(), number)
    hvd.allreduce(torch.ones(2), name="next")


@on_ranks(SECTION, "Rank 1 is killed, or crashes", session=ENDS, do=f"`horo run` prints the signal. {NEXT}")
def killed():
    end_by(signal.SIGKILL)


@on_ranks(
    SECTION,
    "Rank 1 stops (SIGSTOP, a debugger, a machine that hangs) or loses its network",
    session=ENDS,
    do=f"`HORO_DEADLINE_MS` is the longest silence of a rank while others wait. {NEXT}",
    env={"HORO_DEADLINE_MS": "1000", "HORO_BEAT_MS": "100"},
    changing=((r"for \d+\.\d s", "for <time>"),),
)
def stopped():
    hvd.barrier()
    if hvd.rank() == 1:
        watcher = os.fork()
        if watcher == 0:
            wake_up_later(os.getppid())
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)  # its own error would be too late for the others
    hvd.allreduce(torch.ones(2), name="next")


def wake_up_later(pid):
    """In a forked child: continues the stopped rank, so that the job can end."""
    time.sleep(6)
    os.kill(pid, signal.SIGCONT)
    os._exit(0)


@on_ranks(
    SECTION,
    "Rank 1 has no memory left",
    session=ENDS,
    do="Give the ranks more memory, or use smaller tensors; `ulimit -v` and the container set the limit",
)
def out_of_memory():
    data = torch.ones(16 << 20)
    hvd.barrier()
    if hvd.rank() == 1:
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (1 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    hvd.allgather(data, name="large")
