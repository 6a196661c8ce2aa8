# ruff: noqa: F401, F403
"""See horo.torch.mpi_ops."""

from horo.torch.mpi_ops import *
from horovod.common.util import get_average_backwards_compatibility_fun, handle_average_backwards_compatibility
from horovod.torch.gradients import allgather, broadcast, grouped_allgather, grouped_reducescatter, reducescatter
