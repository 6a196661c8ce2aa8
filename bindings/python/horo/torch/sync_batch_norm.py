"""A stub of Horovod's SyncBatchNorm, for isinstance() checks. This version does not implement it."""

import torch

from horo.errors import not_yet


class SyncBatchNorm(torch.nn.Module):
    """Batch normalization over the batches of all ranks."""

    def __init__(self, *_, **__):
        raise not_yet("SyncBatchNorm; torch.nn.BatchNorm*d normalizes by the rank's own batch")
