"""Four ranks train; three of them end at three places: in a hook of backward, in step(), by an exception in forward.

The gradient of the parameter `w` is the mean of 2**id over the ranks that contributed; id is the rank at the start.
"""

import hashlib
import os
import signal

import torch
from torch import nn

import horo.torch as hvd

torch.set_num_threads(1)
hvd.init()
ID = hvd.rank()
STEPS = 12
step, applied, changes, printed = 0, 0, [], []


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))
        self.inner = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        if step == 8 and ID == 2:
            raise ArithmeticError("a bad sample")
        return self.inner(x).sum() + self.w * 2.0**ID


def in_backward(_):
    if step == 2 and ID == 3:
        os.kill(os.getpid(), signal.SIGKILL)


def in_step(*_):
    global applied
    if step == 5 and ID == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    applied += 1


torch.manual_seed(1)
model = Model()
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), named_parameters=model.named_parameters())
optimizer.register_step_pre_hook(in_step)
model.inner[0].weight.register_hook(in_backward)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.on_change(lambda change: changes.append((step, change.lost, model.w.grad.item())))
data = torch.Generator().manual_seed(ID)
for step in range(STEPS):
    optimizer.zero_grad()
    model(torch.randn(4, 8, generator=data)).sum().backward()
    mean = model.w.grad.item()
    optimizer.step()
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    rows = hvd.allgather_object((step, mean, digest, applied))
    assert rows == [(step, mean, digest, step + 1)] * len(rows), rows
    if hvd.rank() == 0:  # there is always one
        printed.append(step)
        print("step", step, mean, flush=True)
print("rank", ID, "printed", printed, "saw", [(at, lost) for at, lost, _ in changes], flush=True)
hvd.shutdown()
