"""Two models, each trained by a process set of its own, and a sum over all ranks at the end."""

import argparse

import torch
from torch import nn

import horovod.torch as hvd

parser = argparse.ArgumentParser(description="PyTorch process sets")
parser.add_argument("--rows", type=int, default=16, help="of each model's batch")
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()

hvd.init(process_sets="dynamic")
torch.set_num_threads(1)
if hvd.size() > 1:
    even_set = hvd.add_process_set(hvd.ProcessSet(range(0, hvd.size(), 2)))
    odd_set = hvd.add_process_set(range(1, hvd.size(), 2))
else:
    even_set = odd_set = hvd.global_process_set


def trained(number, process_set):
    """The losses of a model, averaged over the set; zeros on the ranks outside."""
    losses = torch.zeros(args.steps)
    if not process_set.included():
        return losses
    torch.manual_seed(number)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    for name, parameter in model.named_parameters():
        hvd.broadcast_(parameter.data, process_set.ranks[0], name=f"{number}.{name}", process_set=process_set)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), process_set=process_set)
    for step in range(args.steps):
        rows = torch.randn(args.rows, 4)[process_set.rank() :: process_set.size()]
        optimizer.zero_grad()
        loss = ((model(rows) - rows.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses[step] = hvd.allreduce(loss.detach(), name=f"loss.{number}", process_set=process_set)
    return losses / process_set.size()


losses = [trained(number, process_set) for number, process_set in enumerate([even_set, odd_set])]
losses = hvd.allreduce(torch.stack(losses), op=hvd.Sum, name="losses")
if hvd.rank() == 0:
    for number, row in enumerate(losses):
        print(f"model {number}: losses " + " ".join(f"{loss:.12f}" for loss in row.tolist()))
if hvd.size() > 1:
    assert hvd.remove_process_set(even_set) and hvd.remove_process_set(odd_set)
