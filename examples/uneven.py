"""Trains on unevenly distributed data: ranks run out of batches at different times and join, and each head of the
model is trained by a subset of the ranks.

Two tasks share a trunk. Every rank has samples of one task; even ranks have those of the first. The trunk's gradients
are summed over all ranks, a head's over the process set of its task; both are divided by the number of samples. At the
end the result is compared with a training of all samples in one process.

    pip install torch
    horo run -n 4 python examples/uneven.py
"""

import sys

import torch
from torch import nn

import horo.torch as horo

PASSES = 3
BATCH = 8
FEATURES = 6


def make_model(seed):
    """A trunk, and one head per task."""
    torch.manual_seed(seed)
    trunk = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh()).double()
    heads = [nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1)).double() for _ in range(2)]
    return trunk, heads


def make_optimizer(part):
    return torch.optim.SGD(part.parameters(), lr=0.05, momentum=0.9)


def batches_of(rank):
    """This rank's batches: rank 0 has the fewest, and the last batch is short on most ranks."""
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(11 + 17 * rank, FEATURES, dtype=torch.float64, generator=generator)
    outputs = inputs.sin().sum(1, keepdim=True) if rank % 2 else inputs.prod(1, keepdim=True)
    return list(zip(inputs.split(BATCH), outputs.split(BATCH)))


def error_of(trunk, head, batch):
    """The sum of the squared errors, so that sums over ranks are sums over samples."""
    inputs, outputs = batch
    return (head(trunk(inputs)) - outputs).square().sum()


def step(optimizer, part, count):
    """One step with the gradients divided by count, the number of samples."""
    for param in part.parameters():
        param.grad /= count
    optimizer.step()


def train_together(teams):
    """The training on this rank."""
    trunk, heads = make_model(seed=0 if horo.rank() == 0 else 100 + horo.rank())
    task = horo.rank() % 2
    team, head = teams[task], heads[task]
    horo.broadcast_parameters(nn.ModuleList([trunk, *heads]).state_dict(), root_rank=0)
    parts = [(trunk, horo.global_process_set), (head, team)]
    optimizers = [
        horo.DistributedOptimizer(make_optimizer(part), part.named_parameters(), op=horo.Sum, process_set=ranks)
        for part, ranks in parts
    ]
    for _ in range(PASSES):
        for batch in batches_of(horo.rank()):
            mine = torch.tensor(len(batch[0]))
            counts = [horo.allreduce_async(mine, name="samples", op=horo.Sum, process_set=ranks) for _, ranks in parts]
            for optimizer in optimizers:
                optimizer.zero_grad()
            error_of(trunk, head, batch).backward()
            for optimizer, (part, _), count in zip(optimizers, parts, counts):
                optimizer.synchronize()
                with optimizer.skip_synchronize():
                    step(optimizer, part, horo.synchronize(count))
        # A rank that joined early has missed the last steps of the others; it gets the result of the last rank.
        joins = [horo.join_async(process_set=ranks) for _, ranks in parts]
        for join, optimizer, (part, ranks) in zip(joins, optimizers, parts):
            last = horo.synchronize(join)
            horo.broadcast_parameters(part.state_dict(), last, process_set=ranks)
            horo.broadcast_optimizer_state(optimizer, last, process_set=ranks)
    return trunk, heads


def train_alone(size):
    """The same training with all samples in one process."""
    trunk, heads = make_model(seed=0)
    parts = [trunk, *heads]
    optimizers = [make_optimizer(part) for part in parts]
    data = [batches_of(rank) for rank in range(size)]
    for _ in range(PASSES):
        for number in range(max(map(len, data))):
            for optimizer in optimizers:
                optimizer.zero_grad()
            counts = [0, 0]
            for rank in range(size):
                if number < len(data[rank]):
                    error_of(trunk, heads[rank % 2], data[rank][number]).backward()
                    counts[rank % 2] += len(data[rank][number][0])
            for optimizer, part, count in zip(optimizers, parts, [sum(counts), *counts]):
                if count:
                    step(optimizer, part, count)
    return trunk, heads


def main():
    horo.init()
    if horo.size() < 2:
        sys.exit("two tasks need at least two ranks: horo run -n 4 python examples/uneven.py")
    teams = [horo.add_process_set(range(task, horo.size(), 2)) for task in range(2)]
    trunk, heads = train_together(teams)
    for task, head in enumerate(heads):
        horo.broadcast_parameters(head.state_dict(), root_rank=task)
    steps = sum(len(batches_of(rank)) for rank in range(horo.size()))
    batches = horo.allreduce(torch.tensor(len(batches_of(horo.rank()))), op=horo.Sum)
    assert batches == steps, "every rank is back in the world"

    together = torch.cat([p.detach().flatten() for p in nn.ModuleList([trunk, *heads]).parameters()])
    alone_trunk, alone_heads = train_alone(horo.size())
    alone = torch.cat([p.detach().flatten() for p in nn.ModuleList([alone_trunk, *alone_heads]).parameters()])
    difference = ((together - alone).abs().max() / alone.abs().max()).item()
    if horo.rank() == 0:
        print(f"{horo.size()} ranks, {PASSES} passes of {steps} batches")
        print(f"relative difference to one process {difference:.1e}")
    if difference > 1e-10:
        sys.exit(f"rank {horo.rank()} differs by {difference:.1e} from one process, expected at most 1e-10")
    horo.shutdown()


main()
