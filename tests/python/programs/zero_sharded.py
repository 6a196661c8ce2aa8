"""fully_shard() ends with the bits of hvd.DistributedOptimizer, also with clipping, whose norm has one value for any
layout."""

import math

import torch
from raising import raises
from torch import nn
from zero_models import sha

import horo.torch as hvd
import horo.zero
from horo.torch import clipping

torch.set_num_threads(1)
hvd.init()
ME, SIZE = hvd.rank(), hvd.size()


def model():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(8, 27), nn.Tanh(), nn.Linear(27, 24), nn.Tanh(), nn.Linear(24, 3))


def trained(stage, kind, clip):
    net = model() if stage is None else horo.zero.fully_shard(model(), nn.Linear, stage=stage)
    made = torch.optim.SGD if kind == "SGD" else torch.optim.AdamW
    optimizer = made(net.parameters(), lr=0.05, **({"momentum": 0.9} if kind == "SGD" else {}))
    if stage is None:
        optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
    generator, norms = torch.Generator().manual_seed(ME), []
    for _ in range(30):
        optimizer.zero_grad()
        net(torch.randn(4, 8, generator=generator)).square().mean().backward()
        if clip:
            norms.append(hvd.clip_grad_norm_(net.parameters(), 0.1).item())
        optimizer.step()
    return sha(one if stage is None else one.full_tensor() for one in net.parameters()), norms


def norms_of_any_layout():
    generator = torch.Generator().manual_seed(1)
    for scale in (1e-30, 1e-6, 1.0, 1e20):
        whole = torch.randn(3001, generator=generator) * scale
        params = [nn.Parameter(torch.zeros(3001)), nn.Parameter(torch.zeros(0)), nn.Parameter(torch.zeros(2))]
        params[0].grad, params[1].grad = whole.clone(), torch.zeros(0)
        cuts = [nn.Parameter(torch.zeros(size)) for size in (1000, 2001)]
        for cut, part in zip(cuts, whole.split([1000, 2001])):
            cut.grad = part.flip(0)
        norm = hvd.clip_grad_norm_(params, 0.5 * scale)
        assert norm.item() == hvd.clip_grad_norm_(cuts, 0.5 * scale).item()
        assert math.isclose(norm.item(), whole.double().norm().item(), rel_tol=1e-6)
        assert torch.equal(params[0].grad, torch.cat([cut.grad.flip(0) for cut in cuts]))
        if scale == 1.0:
            assert math.isclose(params[0].grad.norm().item(), 0.5, rel_tol=1e-5)
    one = nn.Parameter(torch.zeros(3))
    one.grad = torch.tensor([1.0, math.inf, 0.0])
    with raises(RuntimeError, "the norm of the gradients is inf"):
        hvd.clip_grad_norm_(one, 1.0, error_if_nonfinite=True)
    assert hvd.clip_grad_norm_(one, 1.0).item() == math.inf and one.grad[0] == 0
    one.grad = torch.tensor([1.0, math.nan, 0.0])
    assert math.isnan(hvd.clip_grad_norm_(one, 1.0).item())
    assert hvd.clip_grad_norm_([], 1.0).item() == 0
    one.grad = torch.tensor([3.0, 4.0, 0.0])
    assert hvd.clip_grad_norm_(one, 5.0, 2).item() == 5.0
    for norm_type in (True, math.inf, 1.0):
        with raises(ValueError, f"norm_type={norm_type}; expected 2.0"):
            hvd.clip_grad_norm_(one, 1.0, norm_type)
    one = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    one.grad = torch.tensor([3 + 4j, 12j])
    assert hvd.clip_grad_norm_(one, 6.5).item() == 13.0
    assert torch.allclose(one.grad, torch.tensor([1.5 + 2j, 6j]))
    high, low = clipping._squares([torch.full((9,), 2.0**-30 + 2.0**-16)] * 3, 0)
    assert high == 6 and 0 <= low < 1 << clipping.LOW, "27 quarters and a little"


def mistakes():
    with raises(ValueError, "stage=1; expected 2 or 3"):
        horo.zero.fully_shard(model(), nn.Linear, stage=1)
    with raises(ValueError, "no module of"):
        horo.zero.fully_shard(model(), nn.Conv2d)
    with raises(ValueError, "is what stage says"):
        horo.zero.fully_shard(model(), nn.Linear, reshard_after_forward=True)
    with raises(TypeError, "expected a torch.nn.Module, not a list"):
        horo.zero.fully_shard([], nn.Linear)


mistakes()
norms_of_any_layout()
CASES = [("SGD", False), ("SGD", True), ("AdamW", False), ("AdamW", True)]
for kind, clip in CASES if SIZE > 2 else CASES[-1:]:
    plain = trained(None, kind, clip)
    for stage in (2, 3):
        assert trained(stage, kind, clip) == plain, (kind, clip, stage)
torch.distributed.destroy_process_group()
