"""Distinguishes a rank from the processes that it has started.

Every process that a rank starts inherits the environment variables that describe the rank. So the rank adds
HORO_STARTED_BY: its process id, its place, and a digest of these variables. A process with another id and with the same
variables was started by the rank and is not one itself. A process with other variables (`horo run` or torchrun inside a
rank) belongs to another job. A rank that replaces its program by exec keeps its id.
"""

import hashlib
import os
import stat
import sys

from horo import _native
from horo.errors import HoroError

VARIABLE = "HORO_STARTED_BY"
KEY_BYTES = 32
# The variables by which horo/base/launcher.cc and start.cc know a rank and its job. Those of torchrun count beside
# HORO_RANK with TORCHELASTIC_RUN_ID only: scripts change them.
_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
JOB_VARIABLES = (
    *("HORO_RANK", "HORO_SIZE", "HORO_ADDR", "HORO_JOB", "HORO_KEY_FD", "HORO_KEY_FILE", "HORO_INCARNATION"),
    *_OF_TORCHRUN,
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"),
    *("PMIX_NAMESPACE", "PMI_RANK", "PMI_SIZE"),
    *("SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
)
_PLACE = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "is_homogeneous")


def job(settings=None):
    """The variables that describe this process's rank and job, after the settings of init()."""
    given = {name: str(value) for name, value in (settings or {}).items()}
    described = ((name, given.get(name, os.environ.get(name))) for name in JOB_VARIABLES)
    found = {name: value for name, value in described if value is not None}
    if "HORO_RANK" in found and "TORCHELASTIC_RUN_ID" not in found:
        return {name: value for name, value in found.items() if name not in _OF_TORCHRUN}
    return found


def find_place():
    """Gives this process the variables that describe its rank, if `horo run` has started it and a program in between
    has cleared its environment. Raises ValueError if it cannot be known which rank it is."""
    lines = _native.quick.horo_lost_variables()
    if lines is None:
        raise ValueError(_native.quick.horo_error_text(None).decode(errors="replace"))
    for line in lines.decode(errors="surrogateescape").splitlines():
        name, _, value = line.partition("=")
        os.environ.setdefault(name, value)


def _digest(described):
    return hashlib.sha256(repr(sorted(described.items())).encode()).hexdigest()[:16]


def mark(topology, described):
    """This process is a rank: processes that it starts from now on find that in their environment."""
    numbers = [os.getpid(), *(getattr(topology, name) for name in _PLACE)]
    os.environ[VARIABLE] = ":".join([*map(str, numbers), _digest(described)])


def unmark():
    """This process is no longer a rank."""
    if os.environ.get(VARIABLE, "").startswith(f"{os.getpid()}:"):
        del os.environ[VARIABLE]


def check_guard(described):
    """In an elastic job: raises HoroError if this process cannot be a member of the job, because it was one before, or
    has not inherited the socket to the guard. described: see job()."""
    if "HORO_GUARD_FD" not in os.environ:
        return
    pid, _, rest = os.environ.get(VARIABLE, "").partition(":")
    if pid.isdecimal() and int(pid) != os.getpid() and not rest.endswith(_digest(described)):
        for name in ("HORO_GUARD_FD", "HORO_MIN_NP"):  # of the job of the rank that has started this process
            os.environ.pop(name, None)
        return
    if not _is_unused_socket(os.environ["HORO_GUARD_FD"]):
        raise HoroError(
            f"this process (pid {os.getpid()}) cannot join the elastic job. The job counts a rank as gone for good "
            "after horo.shutdown(), after an init() that failed, and after an exec: call init() once, and shutdown() "
            "only at the end, or start the job without --min-np. A process that was started without the descriptors "
            "of the rank is no rank"
        )


def check_key():
    """Raises HoroError in a worker of multiprocessing that has not inherited the job key. It imports the script before
    the rank, its parent, calls init(), and would take the rank's place. (A process that a launcher in Python starts as
    the rank has no key either, and finds it: horo/base/ancestor_key.h.)"""
    if not _is_worker() or "HORO_KEY_FD" not in os.environ:
        return
    try:
        is_key = len(os.pread(int(os.environ["HORO_KEY_FD"]), KEY_BYTES + 1, 0)) == KEY_BYTES
    except (OSError, ValueError):
        is_key = False
    if not is_key:
        raise HoroError(
            f"this process (pid {os.getpid()}) is a worker of multiprocessing's 'spawn' or 'forkserver', and no rank: "
            "it imports the script again. Put horo.init() and the training under "
            'if __name__ == "__main__":, and do not call init() in functions that workers run'
        )


def _is_worker():
    """Whether multiprocessing has started this process. While it imports the script it has no parent_process() yet."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is None:
        return False
    is_importing = getattr(multiprocessing.current_process(), "_inheriting", False)
    return is_importing or multiprocessing.parent_process() is not None


def _is_unused_socket(text):
    """Whether this is the number of an inherited socket; the library makes the socket that it uses not inheritable."""
    try:
        return stat.S_ISSOCK(os.fstat(int(text)).st_mode) and os.get_inheritable(int(text))
    except (OSError, ValueError):
        return False


class Parent:
    """The rank that has started this process."""

    def __init__(self, pid, topology, described):
        self.pid = pid
        self.topology = topology
        # A world of one that no launcher has described is no job: this process may be another such world.
        self._has_job = topology.size > 1 or "HORO_RANK" in described

    def check(self):
        """Raises the reason why this process is not a rank, and what to do."""
        if self._has_job:
            raise HoroError(self._text())

    def _text(self):
        return (
            f"this process (pid {os.getpid()}) was started by rank {self.topology.rank} (pid {self.pid}) of a job of "
            f"{self.topology.size}, or by a process of that rank: it has inherited the rank's variables, but is not a "
            "rank. A DataLoader worker, or one of multiprocessing's 'spawn' or 'forkserver', imports the script: put "
            'horo.init() and the training under if __name__ == "__main__":, and do not call init() in functions that '
            "workers run (rank() and size() work there without it). A process that is to be a rank of another job "
            "needs that job's variables: start it with horo run, or set HORO_RANK, HORO_SIZE and HORO_ADDR before "
            "horo.init()"
        )


def parent(described):
    """The rank that has started this process, if this process has the rank's variables; else None."""
    pid, *place, digest = os.environ.get(VARIABLE, "").split(":") if VARIABLE in os.environ else ("",) * 2
    numbers = [text for text in (pid, *place) if text.isdecimal()]
    if len(numbers) != 1 + len(_PLACE) or int(pid) == os.getpid() or digest != _digest(described):
        return None
    topology = _native.Topology(0, **dict(zip(_PLACE, map(int, place))))
    return Parent(int(pid), topology, described)
