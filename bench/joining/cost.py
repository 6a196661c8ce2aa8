"""The cost of a job that could grow and does not, beside one that only shrinks. Both jobs run at the same time, and
their ranks make steps in turns: the ranks of the other job wait in a read meanwhile."""

import contextlib
import errno
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
RANKS, LEAST = 2, 1
CONTESTANTS = ("plain", "growing")
WARM_TURNS = 2
LOOK_S = 0.02


class Contestant:
    """A job whose ranks make steps in turns."""

    def __init__(self, name, options, folder, stack):
        folder = pathlib.Path(folder) / name
        folder.mkdir()
        for rank in range(RANKS):
            for end in ("go", "done"):
                os.mkfifo(folder / f"{rank}.{end}")
        command = [options.horo, "run", "-n", RANKS, "--min-np", LEAST, "--grace", 0, sys.executable]
        command += [HERE / "rank_of_cost.py", name, folder, options.cost_batch]
        self._output = stack.enter_context(open(folder / "output", "w+b"))
        quiet = {"stdin": subprocess.DEVNULL, "stdout": self._output, "stderr": subprocess.STDOUT}
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        self._job = subprocess.Popen([str(word) for word in command], env=env, **quiet)
        stack.callback(self._end)
        self._go = [stack.enter_context(self._open(folder / f"{rank}.go")) for rank in range(RANKS)]
        self._done = [stack.enter_context(open(folder / f"{rank}.done")) for rank in range(RANKS)]

    def _open(self, path):
        """The writing end of a pipe that a rank opens for reading. Raises RuntimeError if the job ends before."""
        while self._job.poll() is None:
            try:
                return open(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "w", buffering=1)
            except OSError as error:
                if error.errno != errno.ENXIO:  # no rank has opened it yet
                    raise
            time.sleep(LOOK_S)
        self._fail()

    def _fail(self):
        self._output.seek(0)
        raise RuntimeError(f"a rank has ended\n{self._output.read().decode(errors='replace')[-3000:]}")

    def _end(self):
        self._job.terminate()
        self._job.wait()

    def turn(self, steps):
        """(us of a step, us of the processor): means over the turn, of the slower rank and of all ranks."""
        for file in self._go:
            file.write(f"{steps}\n")
        found = [file.readline() for file in self._done]
        if not all(found):
            self._fail()
        wall, processor = zip(*(map(int, line.split()) for line in found))
        return max(wall) / 1000 / steps, sum(processor) / 1000 / steps


def rounds(options):
    """Yields {name: what Contestant.turn() returns} for each round of one start of the jobs."""
    with tempfile.TemporaryDirectory(prefix="horo_join_") as folder, contextlib.ExitStack() as stack:
        field = [Contestant(name, options, folder, stack) for name in CONTESTANTS]
        for number in range(-WARM_TURNS, options.cost_rounds):
            order = field if number % 2 == 0 else field[::-1]
            times = {CONTESTANTS[field.index(one)]: one.turn(options.cost_steps) for one in order}
            if number >= 0:
                yield times
