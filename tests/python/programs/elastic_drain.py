"""Ranks that get a notice: elastic_drain.py HOW [STEPS]. Prints a line for each rank that ends."""

import atexit
import hashlib
import os
import sys

import numpy
import torch

import horo.torch as hvd

HOW, STEPS = sys.argv[1], int((sys.argv[2:] or ["1000000"])[0])
ID = int(os.environ["HORO_RANK"])
torch.set_num_threads(1)
try:
    hvd.notice()
except ValueError:
    pass  # there is no session yet
else:
    raise AssertionError
hvd.init()
assert hvd.notice() is None
atexit.register(lambda: print(ID, "atexit", hvd.is_initialized(), flush=True))  # runs before horo's
model = torch.nn.Linear(6, 3)
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
rows = torch.Generator().manual_seed(ID)
step = -1


def tell(how):
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    print(ID, how, step + 1, digest, flush=True)


def train():
    global step
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, 6, generator=rows)).square().sum().backward()
        optimizer.step()
        if step == 20:
            print(ID, "runs", flush=True)
    tell("trained")


def poll():
    """A loop without an optimizer leaves where it asks."""
    global step
    for step in range(STEPS):
        hvd.allreduce(torch.from_numpy(numpy.ones(3)), name="x")
        if step == 20:
            print(ID, "runs", flush=True)
        notice = hvd.notice()
        if notice is not None:
            assert 0 < notice.grace_s <= 30
            return tell("left")
    tell("trained")


if HOW == "polls":
    poll()
elif HOW == "saves":
    try:
        train()
    except hvd.Drained as drained:
        assert drained.code == 0 and 0 < hvd.notice().grace_s <= 30
        tell("saved")
    hvd.shutdown()
else:
    try:
        train()
    finally:
        tell("ends")
