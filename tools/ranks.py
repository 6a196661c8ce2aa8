"""Runs a program on N ranks of this host, with a deadline, and returns the output of each rank."""

import collections
import contextlib
import dataclasses
import glob
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

GRACE_S = 10  # for the other ranks after one rank has failed
MPIRUN = "mpirun.openmpi"  # Debian's name, which MPICH's mpirun does not shadow
MPIRUN_VARIABLES = ("HORO_RANK", "HORO_SIZE", "HORO_LOCAL_", "HORO_ADDR", "OMPI_COMM", "PMI")


@dataclasses.dataclass
class Rank:
    """How one rank ended."""

    rank: int
    code: int | None  # exit status; None: it was killed at the deadline
    output: str


class RanksFailed(Exception):
    """At least one rank failed or missed the deadline; the text contains each rank's output."""

    def __init__(self, ranks):
        self.ranks = ranks
        super().__init__("\n".join(f"---- rank {r.rank}, {_ending(r.code)}\n{r.output.rstrip()}" for r in ranks))


def _ending(code):
    return "killed at the deadline; its last lines:" if code is None else f"exit status {code}:"


@contextlib.contextmanager
def reserved_address():
    """A loopback address that the kernel gives to no other process: bound, not listening. SO_REUSEADDR can bind it."""
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{keeper.getsockname()[1]}"


_kept = collections.deque(maxlen=4)  # addresses that are still reserved


def free_address():
    """A loopback address without a listener. It stays reserved during the next calls of this function."""
    _kept.append(contextlib.ExitStack())
    return _kept[-1].enter_context(reserved_address())


class ThisHost:
    """The placement of ranks as processes of this host, and their environment variables."""

    def __init__(self):
        self.address = free_address()

    def prefix(self, _):
        """The leading words of a rank's command."""
        return []

    def environment(self, rank, size):
        return environment(rank, size, self.address)


def environment(rank, size, address):
    """The variables of this process and those of a static world."""
    return os.environ | {
        "HORO_RANK": str(rank),
        "HORO_SIZE": str(size),
        "HORO_LOCAL_RANK": str(rank),
        "HORO_LOCAL_SIZE": str(size),
        "HORO_ADDR": address,
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def start_process(command, env, output):
    """A process with this output and no input."""
    return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


start = start_process  # tests/conftest.py has another one


def _wait(processes, deadline_s):
    """Waits until all have ended, the deadline, or GRACE_S after the first failure. Returns those that still run."""
    end = time.monotonic() + deadline_s
    failed = False
    for turn in range(1 << 30):
        running = [process for process in processes if process.poll() is None]
        if not failed and any(process.poll() for process in processes):
            failed, end = True, min(end, time.monotonic() + GRACE_S)
        left = end - time.monotonic()
        if not running or left <= 0:
            return running
        try:
            running[turn % len(running)].wait(min(left, 0.05))
        except subprocess.TimeoutExpired:
            pass


def run_ranks(command, size, deadline_s=180, env=None, places=None):
    """Starts the command once per rank; returns a Rank for each, whatever their exit statuses. Returns by the deadline.

    places: an object with the methods of ThisHost."""
    places = places or ThisHost()
    with tempfile.TemporaryDirectory() as folder:
        files = [open(os.path.join(folder, str(rank)), "w+b") for rank in range(size)]
        processes = [
            start([*places.prefix(rank), *command], places.environment(rank, size) | (env or {}), files[rank])
            for rank in range(size)
        ]
        try:
            late = _wait(processes, deadline_s)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        ranks = []
        for rank, (process, file) in enumerate(zip(processes, files)):
            file.seek(0)
            text = file.read().decode(errors="replace")
            file.close()
            ranks.append(Rank(rank, None if process in late else process.returncode, text))
        return ranks


def run_by_mpirun(command, size, deadline_s=180, env=None, options=()):
    """run_ranks with Open MPI's mpirun. Every Rank gets the exit status of mpirun, which has none per rank."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(MPIRUN_VARIABLES)}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    plain = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory() as folder:
        place = ["--merge-stderr-to-stdout", "--output-filename", f"{folder}/out:nocopy"]
        process = subprocess.Popen(
            [MPIRUN, "--oversubscribe", "-n", str(size), *place, *options, *command],
            env=kept | root | plain | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            code, output = None, ""
            output = process.communicate(timeout=deadline_s)[0]
            code = process.returncode
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
        ranks = []
        for rank in range(size):
            found = glob.glob(f"{folder}/out/*/rank.*{rank}/stdout")
            text = pathlib.Path(found[0]).read_text(errors="replace") if found else ""
            ranks.append(Rank(rank, code, text + (output if rank == 0 else "")))
        return ranks


def check_ranks(command, size, deadline_s=180, env=None, run=run_ranks, **options):
    """run_ranks (or run_by_mpirun) with its options. Raises RanksFailed unless every exit status is 0."""
    ranks = run(command, size, deadline_s, env, **options)
    if any(rank.code != 0 for rank in ranks):
        raise RanksFailed(ranks)
    return ranks
