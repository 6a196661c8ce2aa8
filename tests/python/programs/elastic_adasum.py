"""Steps of a DistributedOptimizer with op=Adasum; rank 3 of four kills itself before its fifth step. Prints the sha256
of the parameters, and whether they are those of a simulation of the members of each step."""

import hashlib
import os
import signal

import torch
from adasum_numpy import recursion

import horo.torch as hvd

torch.set_num_threads(1)
hvd.init()
ID = hvd.rank()
weight = torch.nn.Parameter(torch.zeros(1000, dtype=torch.float64))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.5), [("weight", weight)], op=hvd.Adasum)
simulated = torch.zeros_like(weight)


def gradient(rank, step):
    return torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(100 * rank + step))


for step in range(10):
    if ID == 3 and step == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    weight.grad = gradient(ID, step)
    optimizer.step()
    members = range(4 if step < 4 else 3)
    simulated += torch.from_numpy(recursion([(-0.5 * gradient(rank, step)).numpy() for rank in members]))
near = torch.allclose(weight.detach(), simulated, rtol=0, atol=1e-10)
print(hashlib.sha256(weight.detach().numpy().tobytes()).hexdigest(), near, flush=True)
hvd.shutdown()
