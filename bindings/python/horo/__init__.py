"""horo: data-parallel training. horo.torch has the collectives and the optimizer, horo.numpy the collectives on arrays.

This package itself requires neither torch nor NumPy.

    import horo.torch as horo

    horo.init()
    optimizer = horo.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    horo.broadcast_parameters(model.state_dict(), root_rank=0)
"""

import importlib

from horo import _hints
from horo._changes import on_change
from horo._custom import register_codec, register_op
from horo._default import (
    counters,
    cross_rank,
    cross_size,
    is_elastic,
    is_initialized,
    local_rank,
    local_size,
    members,
    rank,
    ready_times,
    shutdown,
    size,
)
from horo._marks import input
from horo._mesh import Mesh, mesh
from horo._native import version
from horo._notice import Notice, notice
from horo._sets import ProcessSet, add_process_set, global_process_set, init, remove_process_set
from horo._steps import last_step, last_steps, step_end
from horo.errors import Drained, HoroError, Mismatch, PeerLost, ReplicasDiffer, ShutDown

from horo import checkpoint, elastic  # isort: skip  # they need the names above

__version__ = version()

__all__ = [
    "Drained",
    "HoroError",
    "Mesh",
    "Mismatch",
    "Notice",
    "PeerLost",
    "ProcessSet",
    "ReplicasDiffer",
    "ShutDown",
    "add_process_set",
    "checkpoint",
    "counters",
    "cross_rank",
    "cross_size",
    "elastic",
    "global_process_set",
    "init",
    "input",
    "is_elastic",
    "is_initialized",
    "last_step",
    "last_steps",
    "local_rank",
    "local_size",
    "members",
    "mesh",
    "notice",
    "on_change",
    "rank",
    "ready_times",
    "register_codec",
    "register_op",
    "remove_process_set",
    "shutdown",
    "size",
    "step_end",
]


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module 'horo' has no attribute {name!r}")
    if name == "zero":
        return importlib.import_module("horo.zero")
    raise _hints.of_package(name, __all__)
