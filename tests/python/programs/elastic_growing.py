"""Ranks train with a horo.elastic.State; some die, each in another place. Prints for each step the samples of this rank
and, from the gradient of `weights`, which ranks have contributed. Arguments: deaths as rank:step:place, where place is
"before" (in the backward, before its gradients are reduced), "after" (the step) or "evaluation" (after this pass).

The job never grows: that is tested where the library can.
"""

import os
import signal
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

import horo.torch as horo

SAMPLES, BATCH, PASSES, MOST = 53, 2, 3, 6
DEATHS = {(int(rank), int(step), place) for rank, step, place in (each.split(":") for each in sys.argv[1:])}

torch.set_num_threads(1)
horo.init()
ID = horo.rank()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.theta = nn.Linear(3, 1)
        self.weights = nn.Parameter(torch.zeros(MOST))

    def forward(self, x):
        return self.theta(self.norm(x.unsqueeze(2).expand(-1, 3, 4)).mean(2)).mean() + self.weights[ID]


def die_if(step, place):
    if (ID, step, place) in DEATHS:
        os.kill(os.getpid(), signal.SIGKILL)


class Dying(torch.autograd.Function):
    """Its backward is the first one."""

    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, gradient):
        die_if(state.steps, "before")
        return gradient


def changed(change):
    state.changes = [*state.changes, [list(change.lost), list(change.joined), change.old_size, change.size]]


torch.manual_seed(1)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
optimizer = horo.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
horo.broadcast_parameters(model.state_dict(), root_rank=0)
sampler = horo.elastic.Sampler(SAMPLES, batch_size=BATCH, seed=3)
data = [(i, torch.randn(3, generator=torch.Generator().manual_seed(i))) for i in range(SAMPLES)]
loader = DataLoader(data, batch_sampler=sampler, num_workers=2, prefetch_factor=2)
state = horo.elastic.State(model=model, optimizer=optimizer, sampler=sampler, steps=0, changes=[], buffers="mean")
state.on_change(changed)


@horo.elastic.run
def train(state):
    for number in state.passes(PASSES):
        for indices, x in state.batches(loader):
            optimizer.zero_grad()
            Dying.apply(model(x)).backward()
            gradient = model.weights.grad.clone()
            optimizer.step()
            ids = gradient.nonzero().flatten().tolist()
            print("step", number, state.steps, ID, ",".join(map(str, indices.tolist())), ids, flush=True)
            die_if(state.steps, "after")
            state.steps += 1
        die_if(number, "evaluation")
    return "done"


assert train(state) == "done"
values = [*model.state_dict().values(), *(entry["exp_avg"] for entry in optimizer.state_dict()["state"].values())]
total = sum(value.double().sum().item() for value in values)
print("end", state.steps, state.changes, repr(total), flush=True)
