# ruff: noqa: F401
"""The names that horo.numpy and horo.torch have in common, beside the collectives."""

from horo import (
    Drained,
    HoroError,
    Mismatch,
    Notice,
    PeerLost,
    ProcessSet,
    ReplicasDiffer,
    ShutDown,
    add_process_set,
    checkpoint,
    counters,
    cross_rank,
    cross_size,
    global_process_set,
    input,
    is_elastic,
    is_initialized,
    last_step,
    last_steps,
    local_rank,
    local_size,
    members,
    mesh,
    notice,
    on_change,
    rank,
    ready_times,
    register_codec,
    remove_process_set,
    shutdown,
    size,
    step_end,
)
from horo._built import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    is_homogeneous,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from horo._handles import poll, synchronize
from horo._specs import Adasum, Average, BitAnd, BitOr, BitXor, Max, Min, Product, Sum
from horo._timeline import start_timeline, stop_timeline
