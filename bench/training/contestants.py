"""The contestants of bench/train_step: each has a copy of the model, an optimizer and a method to reduce gradients."""

import contextlib
import hashlib
import inspect

import torch
from torch.nn.parallel import DistributedDataParallel

import horo.torch as horo

SEED = 0
MOMENTUM = 0.9
VIEW = "gradient_as_bucket_view"


class Contestant:
    """One copy of the model. Every contestant trains on the same batches in the same order."""

    def __init__(self, task, batches):
        torch.manual_seed(SEED)
        self.bare = task.make()
        self.model = self.bare
        self.optimizer = torch.optim.SGD(self.bare.parameters(), lr=task.rate, momentum=MOMENTUM)
        self.around = contextlib.nullcontext
        self.batches = batches
        self.steps = 0

    def step(self):
        batch = self.batches[self.steps % len(self.batches)]
        self.steps += 1
        self.optimizer.zero_grad()
        with self.around():
            self.model(*batch).backward()
        self.optimizer.step()

    def loss(self):
        """The mean loss on the training batches of this rank."""
        with torch.no_grad():
            return sum(self.bare(*batch).item() for batch in self.batches) / len(self.batches)

    def parameters(self):
        """All parameters in one vector."""
        return torch.cat([parameter.detach().flatten() for parameter in self.bare.parameters()])

    def sha256(self):
        return hashlib.sha256(self.parameters().numpy().tobytes()).hexdigest()


def _distribute_by_ddp(one, view=False, sync=True):
    one.model = DistributedDataParallel(one.bare, broadcast_buffers=False, gradient_as_bucket_view=view)
    if not sync:
        one.around = one.model.no_sync


def _distribute_by_horo(one, name, **options):
    named = [(f"{name}.{key}", parameter) for key, parameter in one.bare.named_parameters()]
    one.optimizer = horo.DistributedOptimizer(one.optimizer, named_parameters=named, **options)
    horo.broadcast_parameters(one.bare.state_dict(), root_rank=0)


def is_available(name):
    """Whether this version of horo has the options of the contestant."""
    return name != "horo-view" or VIEW in inspect.signature(horo.DistributedOptimizer).parameters


def make(name, task, batches):
    one = Contestant(task, batches)
    if name.startswith("ddp"):
        _distribute_by_ddp(one, view=name == "ddp-view", sync=name != "ddp-no-sync")
    elif name.startswith("horo"):
        _distribute_by_horo(one, name, **({VIEW: True} if name == "horo-view" else {}))
    return one
