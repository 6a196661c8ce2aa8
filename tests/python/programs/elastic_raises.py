"""Backward raises on one rank, below gradients that are too large for a batch. All ranks catch it, and go on."""

import torch

import horo.torch as hvd


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, fails):
        ctx.fails = fails
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.fails:
            raise OverflowError("a bad sample")
        return grad, None


torch.set_num_threads(1)
hvd.init()
torch.manual_seed(1)
below, above = torch.nn.Linear(4, 300), torch.nn.Linear(300, 3000)
model = torch.nn.Sequential(below, above)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
caught, steps = [], 0
for number in range(4):
    optimizer.zero_grad()
    hidden = Broken.apply(below(torch.ones(2, 4)), number == 1 and hvd.rank() == 0)
    try:
        above(hidden).sum().backward()
    except (OverflowError, hvd.Mismatch) as error:
        caught.append(type(error).__name__)
        continue
    optimizer.step()
    steps += 1
rows = hvd.allgather_object((steps, below.bias.sum().item()))
print(*caught, steps, rows == rows[:1] * 2, flush=True)
hvd.shutdown()
