"""Horovod's queries of build features. Of those components horo has plug-ins for MPI, CUDA and NCCL; the answers about
all others are negative."""

import os

from horo import _default, _native


def _setting(name):
    """The value in the session, or what the next one gets from the environment."""
    session = _default.current()
    return os.environ.get(name, "") if session is None else session.setting(name)


def mpi_threads_supported():
    """False: horo calls MPI in one thread."""
    _default.size()
    return False


def mpi_enabled():
    """Whether the ranks send by MPI, which HORO_BACKEND=mpi asks for."""
    return _setting("HORO_BACKEND") == "mpi"


def mpi_built():
    """mpi_enabled(): the part of horo that uses MPI is a plug-in. Ranks that mpirun starts are supported without it."""
    return mpi_enabled()


def gloo_enabled():
    """False: horo does not use Gloo."""
    return False


def gloo_built():
    """False: horo does not use Gloo."""
    return False


def nccl_built():
    """0, Horovod's value for a build without NCCL, though CUDA tensors go by NCCL where it is there (`horo doctor`):
    Horovod's scripts ask this to learn whether Adasum averages on each host first, and scale the learning rate by
    local_size() then. horo does not average there."""
    return 0


def ddl_built():
    """False: horo does not use DDL."""
    return False


def ccl_built():
    """False: horo does not use oneCCL."""
    return False


def cuda_built():
    """Whether the plug-in for CUDA tensors is there (HORO_CUDA_LIBRARY). It does not tell whether there are GPUs."""
    beside = os.path.join(os.path.dirname(_native.library_path()), "libhoro_cuda.so")
    return os.path.exists(_setting("HORO_CUDA_LIBRARY") or beside)


def rocm_built():
    """False: horo does not use ROCm."""
    return False


def is_homogeneous():
    """Whether all hosts have the same number of ranks."""
    return _default.is_homogeneous()
