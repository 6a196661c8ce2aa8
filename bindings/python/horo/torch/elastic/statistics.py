"""The statistics of BatchNorm, averaged over the ranks: State(buffers="mean")."""

import torch
from torch.nn.modules.batchnorm import _NormBase

from horo._default import size
from horo._specs import Max
from horo.torch.ops import allreduce_, grouped_allreduce_


def average(values):
    """Averages the running means and variances of all BatchNorms in these modules; numbers of batches become the
    largest one. Collective over the world; blocks."""
    norms = [one for value in values if isinstance(value, torch.nn.Module) for one in value.modules()]
    norms = [one for one in norms if isinstance(one, _NormBase) and one.running_mean is not None]
    if not norms or size() == 1:
        return
    means = [tensor for one in norms for tensor in (one.running_mean, one.running_var)]
    grouped_allreduce_(means, name="horo.elastic statistics")
    counts = torch.stack([one.num_batches_tracked.cpu() for one in norms])
    allreduce_(counts, name="horo.elastic numbers of batches", op=Max)
    for one, count in zip(norms, counts):
        one.num_batches_tracked.copy_(count)
