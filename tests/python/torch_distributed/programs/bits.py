"""Prints one sha256 of the parameters after some steps of DDP (for each size of its buckets), of DDP with ddp_hook over
a group of Gloo, of horo.torch.DistributedOptimizer and of FSDP2. Ranks are delayed at random. Then steps go on until
all names are known, and the last ones send no message with a name. Argument: ranks of a host, or 0 for all."""

import hashlib
import os
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

WIDTH = 640  # 6.6 MB of parameters: several buckets of 1 and of 5 MB
BUCKETS_MB = (1, 5, 25)
KNOWN_STEPS = {"ddp": 18, "fsdp2": 8}  # until each name was used twice: 8 names, one or several a step
COUNTED_STEPS = 3

if os.environ.get("HORO_BACKEND") == "mpi":
    os.environ |= {"RANK": os.environ["OMPI_COMM_WORLD_RANK"], "WORLD_SIZE": os.environ["OMPI_COMM_WORLD_SIZE"]}
    horo.torch.init()
elif int(sys.argv[1]):
    os.environ["HORO_HOST_ID"] = f"host {int(os.environ['RANK']) // int(sys.argv[1])}"


def model():
    torch.manual_seed(5)
    return nn.Sequential(*(each for _ in range(4) for each in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))


def digest(tensors):
    return hashlib.sha256(b"".join(each.detach().contiguous().numpy().tobytes() for each in tensors)).hexdigest()


def train(net, optimizer=None, steps=5):
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(9, WIDTH, generator=generator)).pow(2).mean().backward()
        time.sleep(random.random() * 0.01)
        optimizer.step()


def named_messages():
    return dist.group.WORLD.session.counters()["control"]["messages_with_names"]


def all_become_known(kind, net):
    """After some steps, a step costs no message with a name on any rank."""
    train(net, steps=KNOWN_STEPS[kind])
    dist.barrier()
    before = named_messages()
    train(net, steps=COUNTED_STEPS)
    named = named_messages() - before
    assert named == 0, f"{named} messages with names in {COUNTED_STEPS} steps of {kind}"


def ddp(bucket_mb, hook=None, group=None):
    net = DistributedDataParallel(model(), bucket_cap_mb=bucket_mb, process_group=group)
    if hook is not None:
        net.register_comm_hook(None, hook)
    train(net)
    found = digest(net.parameters())
    if bucket_mb == BUCKETS_MB[0] and group is None:
        all_become_known("ddp", net)
    return found


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
    found = digest(each.full_tensor() for each in net.parameters())
    all_become_known("fsdp2", net)
    return found


dist.init_process_group("horo", timeout=DEADLINE)
other = dist.new_group(backend="gloo")
found = {f"ddp {size} MB": ddp(size) for size in BUCKETS_MB}
found |= {"hook": ddp(1, horo.torch.ddp_hook, other), "optimizer": of_optimizer(), "fsdp2": fsdp2()}
if dist.get_rank() == 0:
    print(found)
dist.destroy_process_group()
