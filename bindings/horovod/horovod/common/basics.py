"""HorovodBasics: the calls about the world as methods of one object."""

import horo
from horo import _built, _timeline
from horo._specs import Adasum, Average, Max, Min, Product, Sum


class HorovodBasics:
    """Every object of it stands for the same session. pkg_path and args, a library of Horovod, are not read."""

    Average, Sum, Adasum, Min, Max, Product = Average, Sum, Adasum, Min, Max, Product

    def __init__(self, pkg_path=None, *args):
        pass

    init = staticmethod(horo.init)
    shutdown = staticmethod(horo.shutdown)
    is_initialized = staticmethod(horo.is_initialized)
    rank = staticmethod(horo.rank)
    size = staticmethod(horo.size)
    local_rank = staticmethod(horo.local_rank)
    local_size = staticmethod(horo.local_size)
    cross_rank = staticmethod(horo.cross_rank)
    cross_size = staticmethod(horo.cross_size)
    is_homogeneous = staticmethod(_built.is_homogeneous)
    start_timeline = staticmethod(_timeline.start_timeline)
    stop_timeline = staticmethod(_timeline.stop_timeline)
    mpi_threads_supported = staticmethod(_built.mpi_threads_supported)
    mpi_enabled = staticmethod(_built.mpi_enabled)
    mpi_built = staticmethod(_built.mpi_built)
    gloo_enabled = staticmethod(_built.gloo_enabled)
    gloo_built = staticmethod(_built.gloo_built)
    nccl_built = staticmethod(_built.nccl_built)
    ddl_built = staticmethod(_built.ddl_built)
    ccl_built = staticmethod(_built.ccl_built)
    cuda_built = staticmethod(_built.cuda_built)
    rocm_built = staticmethod(_built.rocm_built)
