# ruff: noqa: F401, F403
"""horovod.torch: horo.torch under Horovod's name."""

from horo.torch import *
from horovod.torch import compression, elastic, functions, mpi_ops, optimizer, sync_batch_norm
