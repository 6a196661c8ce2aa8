# ruff: noqa: F401, F403
"""horo for PyTorch, with Horovod's names: collectives, DistributedOptimizer, broadcasts of the initial state."""

try:
    import torch as _torch
except ImportError as error:
    raise ImportError("horo.torch needs PyTorch: pip install torch") from error

from horo._exports import *
from horo.errors import HoroError as HorovodInternalError
from horo.errors import HostsUpdatedInterrupt
from horo.torch import elastic, mpi_ops
from horo.torch.audit import audit
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
from horo.torch.ddp import ddp_hook
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
from horo.torch.recipes import Warmup, lr_scale, metric_average
from horo.torch.store import init
from horo.torch.sync_batch_norm import SyncBatchNorm
