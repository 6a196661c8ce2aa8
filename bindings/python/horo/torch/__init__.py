# ruff: noqa: F401, F403
"""horo for PyTorch, with Horovod's names: collectives, DistributedOptimizer, broadcasts of the initial state."""

import importlib

try:
    import torch as _torch
except ImportError as error:
    raise ImportError("horo.torch needs PyTorch: pip install torch") from error

from horo import _hints
from horo._exports import *
from horo.torch import elastic, mpi_ops, sharding, tracing
from horo.torch.audit import audit
from horo.torch.clipping import clip_grad_norm_
from horo.torch.compression import Codec, Compressor
from horo.torch.ddp import ddp_hook
from horo.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horo.torch.memory import empty
from horo.torch.mpi_ops import *
from horo.torch.ops import (
    barrier_async,
    gather,
    gather_async,
    join_async,
    recv,
    recv_async,
    reduce,
    reduce_async,
    register_op,
    scatter,
    scatter_async,
    send,
    send_async,
)
from horo.torch.optimizer import DistributedOptimizer
from horo.torch.optimizer_state import state_as_saved
from horo.torch.recipes import Warmup, lr_scale, metric_average
from horo.torch.sync_batch_norm import SyncBatchNorm


def __getattr__(name):
    if name == "zero":
        return importlib.import_module("horo.zero")
    raise _hints.attribute_error(__name__, name, globals())


tracing.hide_package()
