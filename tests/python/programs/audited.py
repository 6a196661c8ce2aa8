"""A small model that is trained on all ranks, and sessions in which the audit looks after every step."""

import contextlib

import torch

import horo.torch as hvd


@contextlib.contextmanager
def session(**settings):
    """A session of its own, in which every step is followed by a look."""
    hvd.shutdown()
    every_step = {"HORO_AUDIT_EVERY": 1, "HORO_AUDIT_PERMILLE": 0, "HORO_AUDIT_WAIT_MS": 30000}
    hvd.init(settings=every_step | {f"HORO_{name}": value for name, value in settings.items()})
    yield
    if hvd.is_initialized():
        hvd.shutdown()


class Trained:
    """A small model with its optimizer, equal on all ranks."""

    def __init__(self, kind, options, seed=0, **wrapping):
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
        self.names = dict(self.model.named_parameters())
        plain = kind(self.model.parameters(), **options)
        self.optimizer = hvd.DistributedOptimizer(plain, self.model.named_parameters(), **wrapping)
        self.data = torch.Generator().manual_seed(hvd.rank())

    def backward(self):
        self.optimizer.zero_grad()
        loss = self.model(torch.randn(4, 6, generator=self.data)).square().mean()
        loss.backward()
        return loss

    def step(self):
        self.backward()
        self.optimizer.step()
