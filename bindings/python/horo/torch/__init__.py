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
    ShutDown,
    counters,
    cross_rank,
    cross_size,
    is_initialized,
    local_rank,
    local_size,
    rank,
    ready_times,
    shutdown,
    size,
)
from horo.torch.autograd import allgather, allreduce, broadcast, reducescatter
from horo.torch.compression import Compression
from horo.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horo.torch.ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather_async,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    poll,
    reducescatter_async,
    synchronize,
)
from horo.torch.optimizer import DistributedOptimizer
from horo.torch.process_set import SetInfo, global_process_set
from horo.torch.store import init
