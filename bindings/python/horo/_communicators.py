"""Communicators of MPI, as mpi4py has them, told by their methods. horo asks them for the ranks that they stand for."""

import os

from horo import _default
from horo.errors import not_yet

# The variables by which horo/base/launcher.cc knows a launcher, in its order; the last one has the size.
_LAUNCHERS = (
    ("HORO_SIZE",),
    ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"),
)


def is_communicator(value):
    return all(callable(getattr(value, name, None)) for name in ("Get_rank", "Get_size"))


def ranks_of(comm):
    """The ranks of horo's world in the communicator. A collective call of it, unless it is one of all ranks."""
    topology = _default.session().topology
    if comm.Get_size() == topology.size:
        return list(range(topology.size))
    if not callable(getattr(comm, "allgather", None)):
        raise TypeError(
            f"ProcessSet({comm!r}): a communicator of {comm.Get_size()} of the {topology.size} ranks, without an "
            "allgather() that tells which ones; expected ranks, such as ProcessSet([0, 1])"
        )
    return sorted(comm.allgather(topology.rank))


def check_size(comm, settings):
    """Raises NotImplementedError if init(comm=...) asks for a part of the world, as far as the job's variables tell
    before the ranks connect: those outside of it may not call init()."""
    if comm is None:
        return
    given = os.environ | {name: str(value) for name, value in (settings or {}).items()}
    sizes = (given[names[-1]] for names in _LAUNCHERS if all(name in given for name in names))
    size = next(sizes, "")
    if size.isdecimal() and _size_of(comm) != int(size):
        raise _is_a_part(comm, int(size))


def check_world(comm):
    """Raises if the comm of init(comm=...), ranks or a communicator, is not the world that init() has joined."""
    topology = _default.session().topology
    if comm is None:
        return
    if _size_of(comm) != topology.size:
        raise _is_a_part(comm, topology.size)
    if is_communicator(comm):
        if comm.Get_rank() != topology.rank:
            raise ValueError(
                f"init(comm=...): this process is rank {comm.Get_rank()} of the communicator and rank {topology.rank} "
                "of the job; expected the same in both, as in MPI.COMM_WORLD"
            )
    elif sorted(comm) != list(range(topology.size)):
        raise ValueError(f"init(comm={comm!r}); expected each of the {topology.size} ranks of the job once")


def _size_of(comm):
    if is_communicator(comm):
        return comm.Get_size()
    if not hasattr(comm, "__len__"):
        raise TypeError(f"init(comm={comm!r}); expected a communicator of mpi4py, or ranks such as [0, 1]")
    return len(comm)


def _is_a_part(comm, size):
    shown = f"{_size_of(comm)} ranks" if is_communicator(comm) else list(comm)
    return not_yet(
        f"init(comm=...) of a part of the job's {size} ranks, {shown}: the world of horo is the job. Start fewer "
        "ranks, or call init() on all ranks, add process_sets=[hvd.ProcessSet(comm)], and give that set to the calls"
    )
