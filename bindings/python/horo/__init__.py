"""horo: data-parallel training. horo.torch has the collectives and the optimizer; this package works without torch.

    import horo.torch as horo

    horo.init()
    optimizer = horo.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    horo.broadcast_parameters(model.state_dict(), root_rank=0)
"""

from horo._default import (
    counters,
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    ready_times,
    shutdown,
    size,
)
from horo._native import version
from horo.errors import HoroError, Mismatch, PeerLost, ShutDown

__version__ = version()

__all__ = [
    "HoroError",
    "Mismatch",
    "PeerLost",
    "ShutDown",
    "counters",
    "cross_rank",
    "cross_size",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "ready_times",
    "shutdown",
    "size",
]
