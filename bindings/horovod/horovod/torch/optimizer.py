# ruff: noqa: F401
"""The optimizer."""

from horo.torch.optimizer import DistributedOptimizer
