"""What Horovod's scripts ask of its build, answered truthfully: of what they ask for, horo is made of nothing."""

from horo import _default
from horo.errors import not_yet


def mpi_threads_supported():
    """False: horo does not use MPI."""
    _default.size()
    return False


def mpi_enabled():
    """False: horo does not use MPI."""
    return False


def mpi_built():
    """False: horo does not use MPI. It runs under mpirun all the same."""
    return False


def gloo_enabled():
    """False: horo does not use Gloo."""
    return False


def gloo_built():
    """False: horo does not use Gloo."""
    return False


def nccl_built():
    """0, the version of NCCL where there is none."""
    return 0


def ddl_built():
    """False: horo does not use DDL."""
    return False


def ccl_built():
    """False: horo does not use oneCCL."""
    return False


def cuda_built():
    """False: this version moves CPU memory."""
    return False


def rocm_built():
    """False: this version moves CPU memory."""
    return False


def is_homogeneous():
    """Whether every host has as many ranks as the others: on one host."""
    if _default.size() != _default.local_size():  # a rank knows the number of its own host alone
        raise not_yet("is_homogeneous() of ranks on several hosts; gather local_size() with allgather")
    return True


def start_timeline(file_path, mark_cycles=False):
    raise not_yet("start_timeline(); horo.counters() and horo.ready_times() say where the time goes")


def stop_timeline():
    raise not_yet("stop_timeline()")
