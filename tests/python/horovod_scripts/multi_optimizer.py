"""Two models with an optimizer each, trained in turns: a generator of points on a circle and a discriminator."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn, optim

import horovod.torch as hvd

parser = argparse.ArgumentParser(description="PyTorch two optimizers")
parser.add_argument("--batch-size", type=int, default=24, help="over all workers")
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--lr", type=float, default=0.02)
args = parser.parse_args()

hvd.init()
torch.manual_seed(7)
torch.set_num_threads(1)
generator = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
discriminator = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))


def wrapped(model, name, optimizer):
    # Horovod: names of parameters have to be unique over all optimizers.
    named = [(f"{name}.{key}", value) for key, value in model.named_parameters()]
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    return hvd.DistributedOptimizer(optimizer, named_parameters=named)


opt_g = wrapped(generator, "generator", optim.Adam(generator.parameters(), lr=args.lr))
opt_d = wrapped(discriminator, "discriminator", optim.SGD(discriminator.parameters(), lr=args.lr, momentum=0.9))
draws = torch.Generator().manual_seed(3)


def drawn(width):
    """This worker's part of a batch that all workers draw alike."""
    rows = torch.rand(args.batch_size, width, generator=draws).to(torch.get_default_dtype())
    return rows[hvd.rank() :: hvd.size()]


def logits_loss(points, is_real):
    found = discriminator(points)
    return F.binary_cross_entropy_with_logits(found, torch.full_like(found, float(is_real)))


for step in range(args.steps):
    angle = drawn(1) * 6.283185307179586
    real, noise = torch.cat([angle.cos(), angle.sin()], 1), drawn(3)
    opt_d.zero_grad()
    loss_d = logits_loss(real, True) + logits_loss(generator(noise).detach(), False)
    loss_d.backward()
    opt_d.step()

    opt_g.zero_grad()
    loss_g = logits_loss(generator(noise), True)
    loss_g.backward()
    opt_g.step()

    # Horovod: two metrics in one call.
    loss_d, loss_g = hvd.grouped_allreduce([loss_d.detach(), loss_g.detach()], name=f"losses.{step}")
    if hvd.rank() == 0 and step % 4 == 3:
        print(f"step {step}: loss of the discriminator {loss_d.item():.12f}, of the generator {loss_g.item():.12f}")
