"""Horovod's queries of build features. horo contains none of those components, so all answers are negative."""

from horo import _default


def mpi_threads_supported():
    """False: horo does not use MPI."""
    _default.size()
    return False


def mpi_enabled():
    """False: horo does not use MPI."""
    return False


def mpi_built():
    """False: horo does not use MPI. Ranks that mpirun starts are supported."""
    return False


def gloo_enabled():
    """False: horo does not use Gloo."""
    return False


def gloo_built():
    """False: horo does not use Gloo."""
    return False


def nccl_built():
    """0, Horovod's value for a build without NCCL."""
    return 0


def ddl_built():
    """False: horo does not use DDL."""
    return False


def ccl_built():
    """False: horo does not use oneCCL."""
    return False


def cuda_built():
    """False: this version supports CPU memory only."""
    return False


def rocm_built():
    """False: this version supports CPU memory only."""
    return False


def is_homogeneous():
    """Whether all hosts have the same number of ranks."""
    return _default.is_homogeneous()
