"""Batch normalization over the batches of all ranks: one allgather in forward, one allreduce in backward.

The ranks gather count, mean and sum of squared deviations of each channel and combine them in the order of ranks (Chan,
Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979), so all ranks have
the same bits, and batches may have different sizes. The gradient is that of the sum of the ranks' losses.
"""

import torch
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from horo._handles import synchronize
from horo._sets import check, global_process_set
from horo._specs import Sum
from horo.torch import ops
from horo.torch.derivatives import once


class SyncBatchNorm(_BatchNorm):
    """torch.nn.BatchNorm1d, 2d and 3d, in training with the mean and variance of the batches of all ranks.

    The arguments are those of torch; process_set: the ranks that share their batches, and a rank outside of it uses its
    own. A batch may be empty on some ranks. All ranks of the set call forward and backward alike."""

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        *,
        process_set=global_process_set,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        check(process_set)
        self.process_set = process_set

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.shape[1] != self.num_features:
            raise ValueError(f"expected {self.num_features} channels in dimension 1 (got {input.shape[1]})")

    def _factor(self):
        """The weight of this batch in the running statistics."""
        if not self.training or not self.track_running_stats:
            return 0.0
        self.num_batches_tracked.add_(1)
        return 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum

    def forward(self, input):
        self._check_input_dim(input)
        factor = self._factor()
        uses_batch = self.training or self.running_mean is None
        keeps = not self.training or self.track_running_stats
        running = (self.running_mean, self.running_var) if keeps else (None, None)
        if uses_batch and self.process_set.members() > 1 and self.process_set.included():
            updated = (*running, factor) if self.training and running[0] is not None else None
            return _Normalize.apply(input, self.weight, self.bias, (self.eps, updated, self.process_set))
        return batch_norm(input, *running, self.weight, self.bias, uses_batch, factor, self.eps)


def _sums_over(tensor):
    """The dimensions of a tensor beside the channels."""
    return [dim for dim in range(tensor.dim()) if dim != 1]


def _wide(tensor):
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _as_channels(values, like):
    """Values by channel, in the form that broadcasts over a batch."""
    return values.to(like.dtype).view(-1, *[1] * (like.dim() - 2))


def _statistics(batch, process_set):
    """(number of values, mean, variance) of each channel over the batches of all ranks, in float64."""
    channels = batch.shape[1]
    count = batch.numel() // max(channels, 1)
    row = torch.zeros(1, 2 * channels + 1, dtype=torch.float64, device=batch.device)
    if count > 0:
        variance, mean = torch.var_mean(batch, _sums_over(batch), correction=0)
        row[0, 0], row[0, 1 : channels + 1], row[0, channels + 1 :] = count, mean, variance.double() * count
    rows = synchronize(ops.allgather_async(row, f"sync_batch_norm.{channels}.forward", process_set))
    counts, means, squares = rows[:, :1], rows[:, 1 : channels + 1], rows[:, channels + 1 :]
    total = counts.sum()
    if total < 2:
        raise ValueError(
            f"SyncBatchNorm: expected more than 1 value per channel in the batches of all ranks, found {int(total)}"
        )
    mean = (counts * means).sum(0) / total
    variance = (squares.sum(0) + (counts * (means - mean) ** 2).sum(0)) / total
    return float(total), mean, variance


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, bias, options):
        eps, updated, process_set = options
        batch = _wide(input)
        count, mean, variance = _statistics(batch, process_set)
        if updated is not None:
            running_mean, running_var, factor = updated
            running_mean.mul_(1 - factor).add_(mean.to(running_mean.dtype), alpha=factor)
            running_var.mul_(1 - factor).add_((variance * (count / (count - 1))).to(running_var.dtype), alpha=factor)
        inverse = torch.rsqrt(variance + eps)
        ctx.save_for_backward(input, weight, mean, inverse)
        ctx.count, ctx.process_set = count, process_set
        scale = inverse if weight is None else inverse * weight.double()
        result = (batch - _as_channels(mean, batch)) * _as_channels(scale, batch)
        return (result if bias is None else result + _as_channels(bias, batch)).to(input.dtype)

    @staticmethod
    def backward(ctx, gradient):
        with torch.no_grad():
            found = _Normalize.derivatives(ctx, gradient)
        given = [each for each in found if each is not None]
        made = iter(once("SyncBatchNorm", given, (*ctx.saved_tensors[:2], gradient)))
        return *(None if each is None else next(made) for each in found), None

    @staticmethod
    def derivatives(ctx, gradient):
        input, weight, mean, inverse = ctx.saved_tensors
        needs_input, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        batch, wide = _wide(input), _wide(gradient)
        centered = batch - _as_channels(mean, batch)
        sums = torch.stack([wide.sum(_sums_over(wide)), (wide * centered).sum(_sums_over(wide))]).double()
        of_input = None
        if needs_input:
            name = f"sync_batch_norm.{batch.shape[1]}.backward"
            totals = synchronize(ops.allreduce_async(sums, name=name, op=Sum, process_set=ctx.process_set)) / ctx.count
            scale = inverse if weight is None else inverse * weight.double()
            slope = centered * _as_channels(totals[1] * inverse**2, batch)
            of_input = (wide - _as_channels(totals[0], batch) - slope) * _as_channels(scale, batch)
            of_input = of_input.to(input.dtype)
        of_weight = (sums[1] * inverse).to(weight.dtype) if needs_weight else None
        of_bias = sums[0].to(gradient.dtype if weight is None else weight.dtype) if needs_bias else None
        return of_input, of_weight, of_bias
