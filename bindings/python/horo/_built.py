"""Horovod's queries of build features. horo contains none of those components, so all answers are negative, but for
those about MPI where a plug-in lets it send by MPI."""

import os

from horo import _default


def mpi_threads_supported():
    """False: horo calls MPI in one thread."""
    _default.size()
    return False


def mpi_enabled():
    """Whether the ranks send by MPI, which HORO_BACKEND=mpi asks for."""
    session = _default.current()
    return (os.environ.get("HORO_BACKEND") if session is None else session.setting("HORO_BACKEND")) == "mpi"


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
    """0, Horovod's value for a build without NCCL."""
    return 0


def ddl_built():
    """False: horo does not use DDL."""
    return False


def ccl_built():
    """False: horo does not use oneCCL."""
    return False


def cuda_built():
    """False: no CUDA library is part of horo; CUDA tensors travel by host memory."""
    return False


def rocm_built():
    """False: horo does not use ROCm."""
    return False


def is_homogeneous():
    """Whether all hosts have the same number of ranks."""
    return _default.is_homogeneous()
