"""A rank whose Python program ends before the others'; forked children; init and shutdown.

These rows need no torch.
"""

import os
import signal
import subprocess
import sys
import threading

import numpy
from table import ENDS, on_ranks

import horo
import horo.numpy as hvd
from horo import _default, _native
from horo._specs import Spec

SECTION = "Exceptions, signals and exits"
TRACEBACK_LINE = {"changing": ((r"rows_exits\.py:\d+", "train.py:<line>"),)}
SEE_OUTPUT = "The traceback is in that rank's output"


def wait_for_all(name="loss"):
    """Waits for a rank that has ended."""
    array = numpy.zeros(3, numpy.float32)
    spec = Spec(name, _native.ALL_REDUCE, dtype=_native.FLOAT32, shape=array.shape)
    work = _default.session().submit(spec, array.ctypes.data, array.ctypes.data, array)
    _default.session().wait([work])


@on_ranks(SECTION, "An uncaught exception on rank 1", do=SEE_OUTPUT, session=ENDS, **TRACEBACK_LINE)
def exception_on_one_rank():
    if horo.rank() == 1:
        raise ArithmeticError("the loss is not a number")
    wait_for_all()


@on_ranks(SECTION, "A user's operation that raises an exception, on rank 1", do=SEE_OUTPUT, session=ENDS)
def operation_that_raises():
    rank = horo.rank()

    def combine(accumulator, value, dtype):
        if rank == 1:
            raise ArithmeticError("these two do not go together")

    hvd.allreduce(numpy.ones(3, numpy.float32), name="loss", op=horo.register_op("merge", combine))
    hvd.barrier()


@on_ranks(
    SECTION, "Ctrl-C, or SIGINT, on rank 1 alone", do="Nothing; the job was interrupted", session=ENDS, **TRACEBACK_LINE
)
def interrupted_rank():
    if horo.rank() == 1:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        wait_for_all("never reduced")
    wait_for_all()


@on_ranks(
    SECTION, "`sys.exit(3)` on rank 1 while rank 0 waits for it", do="End all ranks after the same step", session=ENDS
)
def exit_on_one_rank():
    if horo.rank() == 1:
        sys.exit(3)
    wait_for_all()


@on_ranks(
    SECTION,
    "`os._exit(4)` on rank 1, which runs no `atexit`",
    do="End with `sys.exit`, so that the rank leaves in good order",
    session=ENDS,
)
def exit_without_a_goodbye():
    if horo.rank() == 1:
        os._exit(4)
    wait_for_all()


@on_ranks(
    SECTION,
    "SIGTERM on rank 1",
    do="Find the sender; to leave in good order, install a handler that calls `sys.exit`",
    session=ENDS,
)
def terminated_rank():
    if horo.rank() == 1:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    wait_for_all()


@on_ranks(
    "fork",
    "A call of horo in a process that was forked after `init()`",
    do="Only call `rank()` and `size()` there",
    alone=True,
    changing=((r"rank \d \(pid", "rank <rank> (pid"),),
)
def call_in_a_forked_process():
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            wait_for_all()
        except horo.HoroError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    raise horo.ShutDown(os.read(reader, 10_000).decode())


@on_ranks(
    "fork",
    "`init()` in a process that a rank has started, as a DataLoader worker by 'spawn'",
    do='`init()` and the training under `if __name__ == "__main__":`; only call `rank()` and `size()` there',
    alone=True,
    changing=((r"rank \d \(pid", "rank <rank> (pid"),),
)
def init_in_a_started_process():
    program = "import horo\ntry: horo.init()\nexcept horo.HoroError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60)
    raise horo.HoroError(done.stdout.strip())


@on_ranks(
    "init and shutdown",
    "A tensor submitted while another thread calls `shutdown()`",
    do="Join the threads before `shutdown()`, or end the thread on `ShutDown`",
    alone=True,
    ranks=1,
)
def submit_after_shutdown():
    session = _default.session()
    array = numpy.zeros(3, numpy.float32)
    spec = Spec("loss", _native.ALL_REDUCE, dtype=_native.FLOAT32, shape=array.shape)
    horo.shutdown()
    try:
        session.submit(spec, array.ctypes.data, array.ctypes.data, array)
    finally:
        horo.init()


@on_ranks("init and shutdown", "Settings for a running session", do="`shutdown()` first", alone=True, ranks=1)
def settings_too_late():
    horo.init(settings={"HORO_BUCKET_BYTES": 0})
