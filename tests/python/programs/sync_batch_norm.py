"""SyncBatchNorm on three ranks against torch.nn.BatchNorm in one process with the whole batch."""

import copy
import io

import claims
import torch
from claims import raises
from torch import nn

import horo.torch as hvd

CLOSE = 1e-10
PAIR = hvd.ProcessSet([0, 2])
PLAIN = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def batch_of(rank, rows, rest, dtype=torch.float64):
    generator = torch.Generator().manual_seed(100 + rank)
    return (torch.randn(rows, *rest, generator=generator, dtype=torch.float64) * (1 + rank) + 3 * rank).to(dtype)


def close(found, expected, tolerance=CLOSE):
    assert found.dtype == expected.dtype and found.shape == expected.shape, (found.shape, expected.shape)
    distance = (found - expected).abs().max().item() if found.numel() else 0.0
    assert distance <= tolerance * max(1.0, expected.abs().max().item() if expected.numel() else 0.0), distance


def weigh(layer):
    """Weights that are no ones and zeros."""
    if layer.affine:
        with torch.no_grad():
            layer.weight.copy_(torch.linspace(0.5, 2.0, layer.num_features))
            layer.bias.copy_(torch.linspace(-1.0, 1.0, layer.num_features))
    return layer.to(torch.float64)


def compare(rows, rest, steps=2, process_set=hvd.global_process_set, dtype=torch.float64, tolerance=CLOSE, **options):
    """Trains both for some steps with a loss that weighs each value. rows: by rank."""
    layer = weigh(hvd.SyncBatchNorm(rest[0], process_set=process_set, **options)).to(dtype)
    whole = weigh(PLAIN[len(rest) + 1](rest[0], **options)).to(dtype)
    members = process_set.ranks
    me, starts = members.index(hvd.rank()), [sum(rows[:i]) for i in range(len(rows))]
    for step in range(steps):
        parts = [batch_of(10 * step + rank, rows[place], rest, dtype) for place, rank in enumerate(members)]
        mine, joined = parts[me].clone().requires_grad_(), torch.cat(parts).requires_grad_()
        loss_weights = torch.sin(torch.arange(joined.numel(), dtype=torch.float64)).view_as(joined).to(dtype)
        here = slice(starts[me], starts[me] + rows[me])
        out, expected = layer(mine), whole(joined)
        close(out, expected[here], tolerance)
        (out * loss_weights[here]).sum().backward()
        (expected * loss_weights).sum().backward()
        close(mine.grad, joined.grad[here], tolerance)
    for name, parameter in layer.named_parameters():
        total = hvd.allreduce(parameter.grad, op=hvd.Sum, name=f"total.{name}", process_set=process_set)
        close(total, dict(whole.named_parameters())[name].grad, tolerance)
    for (name, found), expected in zip(layer.named_buffers(), whole.buffers()):
        close(found, expected, tolerance)
        assert torch.equal(hvd.broadcast(found, members[0], name=f"same.{name}", process_set=process_set), found)
    layer.eval(), whole.eval()
    close(layer(parts[me]), whole(torch.cat(parts))[here], tolerance)


def uneven_batches_of_all_dimensions_are_one_batch():
    compare([4, 1, 7], (3,))
    compare([2, 5, 1], (4, 6))
    compare([3, 2, 4], (5, 3, 2))
    compare([1, 2, 1], (2, 3, 2, 2))


def a_batch_may_be_empty_or_have_one_row():
    compare([0, 3, 1], (3,))
    compare([0, 0, 2], (3, 4))
    with raises(ValueError, "more than 1 value per channel", "found 1"):
        hvd.SyncBatchNorm(2).double()(torch.ones(int(hvd.rank() == 1), 2, dtype=torch.float64))


def options_are_those_of_torch():
    compare([2, 3, 4], (3, 2), affine=False)
    compare([2, 3, 4], (3, 2), momentum=None, steps=3)
    compare([2, 3, 4], (3, 2), momentum=0.7, eps=0.5)
    compare([2, 3, 4], (3, 2), track_running_stats=False)
    compare([200, 3, 40], (3, 8, 8), dtype=torch.float32, tolerance=2e-5)
    removed = hvd.SyncBatchNorm(3)
    removed.running_mean = removed.running_var = None  # as torch's, it uses the batch alone
    assert removed(batch_of(hvd.rank(), 4, (3,))).shape == (4, 3)
    half = hvd.SyncBatchNorm(3).bfloat16()
    assert half(batch_of(hvd.rank(), 4, (3,), torch.bfloat16)).dtype == torch.bfloat16


def a_process_set_has_its_own_batch():
    if PAIR.included():
        compare([3, 6], (4, 2), process_set=PAIR)
    else:
        alone, plain = hvd.SyncBatchNorm(4, process_set=PAIR), nn.BatchNorm1d(4)
        own = batch_of(1, 5, (4,), torch.float32)
        assert torch.equal(alone(own), plain(own)) and torch.equal(alone.running_var, plain.running_var)


def strides_and_inputs_without_a_gradient_are_accepted():
    layer, plain = weigh(hvd.SyncBatchNorm(4)), weigh(nn.BatchNorm2d(4))
    images = [batch_of(rank, 2, (4, 3, 3)) for rank in range(3)]
    mine = images[hvd.rank()].to(memory_format=torch.channels_last)
    out = layer(mine)
    out.sum().backward()
    close(out.contiguous(), plain(torch.cat(images))[2 * hvd.rank() : 2 * hvd.rank() + 2])
    assert layer.bias.grad.tolist() == [18.0] * 4


def a_model_may_be_copied_and_saved():
    model = nn.Sequential(nn.Linear(3, 4), hvd.SyncBatchNorm(4), hvd.SyncBatchNorm(4, process_set=PAIR)).double()
    own = batch_of(hvd.rank(), 3, (3,))
    twin = copy.deepcopy(model)
    assert twin[1].process_set is hvd.global_process_set and twin[2].process_set is PAIR
    assert torch.equal(model(own), twin(own))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert loaded[1].process_set is hvd.global_process_set
    assert loaded[2].process_set == PAIR and loaded[2].process_set.process_set_id is None
    assert isinstance(model[1], nn.modules.batchnorm._BatchNorm)


def wrong_inputs_are_refused():
    with raises(ValueError, "at least 2D input (got 1D input)"):
        hvd.SyncBatchNorm(3)(torch.ones(3))
    with raises(ValueError, "expected 3 channels", "got 2"):
        hvd.SyncBatchNorm(3)(torch.ones(4, 2))
    with raises(TypeError, "process_set=[0]"):
        hvd.SyncBatchNorm(3, process_set=[0])
    with raises(ValueError, "ProcessSet([0, 1])", "add_process_set()"):
        hvd.SyncBatchNorm(3, process_set=hvd.ProcessSet([0, 1]))(torch.ones(4, 3))


hvd.init(process_sets=[PAIR])
claims.check(
    uneven_batches_of_all_dimensions_are_one_batch,
    a_batch_may_be_empty_or_have_one_row,
    options_are_those_of_torch,
    a_process_set_has_its_own_batch,
    strides_and_inputs_without_a_gradient_are_accepted,
    a_model_may_be_copied_and_saved,
    wrong_inputs_are_refused,
    init=False,
)
