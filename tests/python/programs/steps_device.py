"""Where the time of steps goes on a device: kernels of known length land in the bar that has launched them, those of a
late rank in the waits of the other one, and the bars add up (docs/scaling.md). On the fake of CUDA. Rank 2 of an
elastic job dies in the fifth backward: the others go on in the next epoch, and wait in the commits."""

import ctypes
import os
import signal
import statistics

import torch

import horo.torch as horo

STEPS = 12
PLANTED_MS = {"forward": 8, "backward": 6, "optimizer": 4}
LATE_MS = 20  # of rank 1, in forward
NOISE_MS = 8  # streams are late by less than a millisecond for each of their operations

fake = ctypes.CDLL(os.environ["HORO_CUDA_LIBRARY"])
spend = fake.fake_cuda_spend
spend.argtypes = [ctypes.c_void_p, ctypes.c_int64]


backwards = 0


def launch(place):
    late_ms = LATE_MS if place == "forward" and horo.rank() == 1 else 0
    spend(None, 1000 * (PLANTED_MS[place] + late_ms))


class Slow(torch.autograd.Function):
    """The identity, whose backward launches a kernel."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        global backwards
        backwards += 1
        if horo.rank() == 2 and backwards == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        launch("backward")
        return gradient


class SGD(torch.optim.SGD):
    def step(self, closure=None):
        launch("optimizer")
        return super().step(closure)


def trained():
    """The records of some steps."""
    model = torch.nn.Linear(16, 4)
    optimizer = horo.DistributedOptimizer(SGD(model.parameters(), lr=0.1), model.named_parameters())
    horo.broadcast_parameters(model.state_dict(), root_rank=0)
    for x in torch.utils.data.DataLoader(torch.randn(8 * (STEPS + 8), 16), batch_size=8):
        optimizer.zero_grad()
        launch("forward")
        model(Slow.apply(x.requires_grad_())).square().mean().backward()
        optimizer.step()
    return horo.last_steps()


horo.init()
had_three = horo.size() == 3
records = trained()
assert horo.size() == 2
assert {one["epoch"] for one in records} == {0, int(had_three)}, records
assert had_three or not any(one["bars"]["membership"] for one in records), records  # the job goes on at once
assert len(records) >= STEPS, len(records)
for one, after in zip(records, records[1:]):
    assert one["begin"] + one["time"] == after["begin"], (one, after)
for one in records:
    assert sum(ns or 0 for ns in one["bars"].values()) == one["time"], one
last = records[-STEPS:]
assert all("device_time" in one["notes"] for one in last), last
times = {bar: sorted(one["bars"][bar] / 1e6 for one in last) for bar in last[0]["bars"]}
for place, planted_ms in PLANTED_MS.items():  # on a busy machine some steps take longer
    expected = planted_ms + (LATE_MS if place == "forward" and horo.rank() == 1 else 0)
    assert expected - 0.5 <= times[place][0] <= expected + NOISE_MS, (place, times)
waits = statistics.median(
    sum(one["bars"][bar] for bar in ("skew", "agreement", "transfer", "copies", "commit", "hand_over")) / 1e6
    for one in last
)
assert (waits >= LATE_MS - NOISE_MS) == (horo.rank() == 0), (waits, times)
horo.shutdown()
