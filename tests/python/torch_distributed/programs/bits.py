"""Prints one sha256 of the parameters after some steps of DDP, of DDP with ddp_hook over a group of Gloo, of
horo.torch.DistributedOptimizer and of FSDP2. Argument: bucket_cap_mb of DDP. Ranks are delayed at random."""

import hashlib
import random
import sys
import time

import torch
import torch.distributed as dist
from claims_torch import DEADLINE
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import horo.torch

BUCKET_MB = float(sys.argv[1])


def model():
    torch.manual_seed(5)
    return nn.Sequential(*(each for _ in range(4) for each in (nn.Linear(33, 33), nn.Tanh())))


def digest(tensors):
    return hashlib.sha256(b"".join(each.detach().contiguous().numpy().tobytes() for each in tensors)).hexdigest()


def train(net, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(5):
        optimizer.zero_grad()
        net(torch.randn(9, 33, generator=generator)).pow(2).mean().backward()
        time.sleep(random.random() * 0.02)
        optimizer.step()


def ddp(hook=None, group=None):
    net = DistributedDataParallel(model(), bucket_cap_mb=BUCKET_MB, process_group=group)
    if hook is not None:
        net.register_comm_hook(None, hook)
    train(net)
    return digest(net.parameters())


def of_optimizer():
    net = model()
    train(net, horo.torch.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)))
    return digest(net.parameters())


def fsdp2():
    net = model()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(net)
    train(net)
    return digest(each.full_tensor() for each in net.parameters())


dist.init_process_group("horo", timeout=DEADLINE)
other = dist.new_group(backend="gloo")
found = {"ddp": ddp(), "hook": ddp(horo.torch.ddp_hook, other), "optimizer": of_optimizer(), "fsdp2": fsdp2()}
if dist.get_rank() == 0:
    print(found)
dist.destroy_process_group()
