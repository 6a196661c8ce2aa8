"""horo.runner.run(): a function on several ranks, its results, and errors by the rank's own text."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest

from horo.runner import run


def summed(array, by=1):
    """Called on each rank; this module is imported there."""
    import horo.numpy as hvd

    hvd.init()
    print(f"rank {hvd.rank()} speaks")
    return hvd.rank(), hvd.allreduce(array * by, op=hvd.Sum)


def test_results_are_a_list_by_rank_and_output_is_passed_on(capsys):
    array = numpy.arange(1 << 20, dtype=numpy.float64)  # more than a socket holds
    results = run(summed, (array,), {"by": 2}, num_proc=3)
    assert [rank for rank, _ in results] == [0, 1, 2]
    assert all((total == 6 * array).all() for _, total in results)
    assert sorted(capsys.readouterr().out.splitlines()) == [f"[{rank}] rank {rank} speaks" for rank in range(3)]


def test_a_broken_stream_of_the_caller_holds_up_no_rank(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    closed = open(os.devnull, "w")
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)

    def talks():
        for _ in range(9999):  # more than a pipe holds
            print("x" * 99)
            print("x" * 99, file=sys.stderr)

    assert run(talks) == [None]


class Odd(Exception):
    """Cannot be pickled and read again."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def test_an_error_of_a_rank_is_raised_with_its_text_and_cause():
    def fails(kind):  # a closure: it travels by value
        import horo.numpy as hvd

        hvd.init()
        if hvd.rank() == 1:
            raise kind("no such layer", 7)
        hvd.allreduce(numpy.ones(2))

    with pytest.raises(
        RuntimeError, match=r"rank 1 raised KeyError: \('no such layer', 7\)\n(.*\n)*.*in fails"
    ) as told:
        run(fails, (KeyError,), num_proc=2)
    assert isinstance(told.value.__cause__, KeyError) and told.value.__cause__.args == ("no such layer", 7)
    with pytest.raises(RuntimeError, match="rank 1 raised .*Odd: no such layer and 7") as told:
        run(fails, (Odd,), num_proc=2)
    assert told.value.__cause__ is None


def test_a_rank_that_is_killed_or_leaves_has_no_result():
    def leaves(how):
        if os.environ["HORO_RANK"] == "1":
            how()
        return 0

    with pytest.raises(
        RuntimeError, match="ranks without a result: 1; the job has ended with exit code 137\nhoro run: "
    ):
        run(leaves, (lambda: os.kill(os.getpid(), signal.SIGKILL),), num_proc=2)
    with pytest.raises(RuntimeError, match="ranks without a result: 1; the job has ended with exit code 0"):
        run(leaves, (lambda: sys.exit(0),), num_proc=2)
    with pytest.raises(RuntimeError, match="rank 0 raised TypeError: cannot pickle"):
        run(threading.Lock, num_proc=1)


def test_an_elastic_job_returns_the_results_of_the_ranks_that_are_left():
    def survives():
        import horo.numpy as hvd

        hvd.init()
        start = hvd.rank()
        if start == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while hvd.size() == 3:
            try:
                hvd.allreduce(numpy.ones(1), name="step")
            except hvd.PeerLost:
                pass
        return start, hvd.size()

    assert run(survives, num_proc=3, min_num_proc=2) == [(0, 2), (2, 2)]


def test_arguments_are_checked_before_anything_starts():
    for options, text in [
        ({"num_proc": 0}, "num_proc=0"),
        ({"hosts": "localhost:1", "num_proc": 2}, "expected at most 1, the slots"),
        ({"hosts": "no-such-host:2", "num_proc": 2}, "no ranks are started on no-such-host"),
        ({"hosts": "localhost:x"}, "expected HOST:SLOTS"),
        ({"hosts": "localhost", "hostfile": "x"}, "at most one"),
        ({"host_discovery_script": "./hosts"}, "host_discovery_script"),
        ({"use_gloo": True, "use_mpi": True}, "at most one"),
    ]:
        with pytest.raises(ValueError, match=text):
            run(print, **options)
    with pytest.warns(UserWarning, match="ssh_port, mpi_args: no effect"):
        assert run(int, ("7",), num_proc=1, ssh_port=22, mpi_args="x", hosts="127.0.0.2:4") == [7]
    with pytest.warns(DeprecationWarning, match="np is deprecated"):
        assert run(int, ("7",), np=2) == [7, 7]


CALLER = """
import os, time
from horo.runner import run
run(lambda: (print("pid", os.getpid(), flush=True), time.sleep(600)), num_proc=2)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_ranks_end_with_their_caller(how):
    caller = subprocess.Popen([sys.executable, "-c", CALLER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pids = [int(caller.stdout.readline().split()[-1]) for _ in range(2)]
    caller.send_signal(how)
    caller.communicate(timeout=60)
    end = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert caller.returncode != 0
