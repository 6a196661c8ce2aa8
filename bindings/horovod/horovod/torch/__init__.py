# ruff: noqa: F401, F403
"""horovod.torch: horo.torch under Horovod's name."""

import importlib

from horo.torch import *
from horovod.torch.gradients import allgather, broadcast, grouped_allgather, grouped_reducescatter, reducescatter

# `from horovod.torch import mpi_ops` would find the module of horo.torch, which has come with the star.
for _module in ("compression", "elastic", "functions", "mpi_ops", "optimizer", "sync_batch_norm"):
    importlib.import_module(f"horovod.torch.{_module}")
