"""Rank 1 of an elastic job is killed in a DDP step: the others raise an error that names it."""

import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("horo")
net = DistributedDataParallel(nn.Linear(4, 4))
for turn in range(1000):
    if turn == 3 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    net(torch.ones(2, 4)).sum().backward()
