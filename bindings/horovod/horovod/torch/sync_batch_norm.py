# ruff: noqa: F401
"""Batch normalization over all ranks."""

from horo.torch.sync_batch_norm import SyncBatchNorm
