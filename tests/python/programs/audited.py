"""A small model that is trained on all ranks, and sessions in which the audit looks after every step."""

import contextlib
import os

import torch

import horo.torch as hvd

# Steps until a difference is known at the latest: at once, or where all tensors are on the fake device, when the look
# in progress and the next one have ended. tests/fake_devices.py
MOST_LATER = 12 if os.environ.get("TEST_DEVICE") == "fake" else 0


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

    def update(self):
        """A step that applies the gradients as they are."""
        with self.optimizer.skip_synchronize():
            self.optimizer.step()

    def known(self, step=None):
        """Makes a step, by this function, and those after which a difference that is there now is known."""
        (step or self.step)()
        for _ in range(MOST_LATER):
            self.step()

    def make_equal(self, root=0):
        """All ranks take the parameters of one, and end the look that may still find what was different before."""
        self.optimizer.synchronize()  # with cross_barrier an error leaves the gradients of its step in flight
        hvd.broadcast_parameters(self.model.state_dict(), root)
        for _ in range(MOST_LATER):
            with contextlib.suppress(hvd.ReplicasDiffer):
                self.step()
            self.optimizer.synchronize()


def difference_of(act):
    """The ReplicasDiffer that a function raises."""
    try:
        act()
    except hvd.ReplicasDiffer as error:
        return error
    raise AssertionError("the look found nothing")


def is_between(between, last, first):
    """Whether ReplicasDiffer.between tells that something became different after step `last` and by step `first`; a
    look at values of the device may begin some steps later, and the one before may be earlier."""
    if MOST_LATER == 0:
        return between == (last, first)
    return (between[0] or 0) <= last and first <= between[1] <= first + MOST_LATER
