# ruff: noqa: F401
"""horo for PyTorch, with Horovod's names: collectives on tensors, DistributedOptimizer, helpers to start alike."""

try:
    import torch as _torch
except ImportError as error:
    raise ImportError("horo.torch needs PyTorch: pip install torch") from error

from horo import (
    HoroError,
    Mismatch,
    PeerLost,
    ProcessSet,
    ShutDown,
    add_process_set,
    counters,
    cross_rank,
    cross_size,
    global_process_set,
    is_initialized,
    local_rank,
    local_size,
    rank,
    ready_times,
    register_codec,
    remove_process_set,
    shutdown,
    size,
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
    start_timeline,
    stop_timeline,
)
from horo._handles import poll, synchronize
from horo._specs import Adasum, Average, BitAnd, BitOr, BitXor, Max, Min, Product, Sum
from horo.torch import elastic
from horo.torch.autograd import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from horo.torch.compression import Codec, Compression, Compressor
from horo.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horo.torch.ops import (
    allgather_async,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall_async,
    barrier,
    barrier_async,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    gather,
    gather_async,
    grouped_allgather_async,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter_async,
    join,
    join_async,
    recv,
    recv_async,
    reduce,
    reduce_async,
    reducescatter_async,
    register_op,
    scatter,
    scatter_async,
    send,
    send_async,
    sparse_allreduce_async,
)
from horo.torch.optimizer import DistributedOptimizer
from horo.torch.store import init
from horo.torch.sync_batch_norm import SyncBatchNorm
