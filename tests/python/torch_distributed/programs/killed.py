"""A rank is killed at a random moment inside DDP, FSDP2 or DCP: every other rank raises an error with its number within
the deadline. Arguments: the kind, a seed, a folder."""

import os
import random
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

KIND, SEED, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
DEADLINE_S = 60


def model():
    torch.manual_seed(5)
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(6)))


def training(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(_):
        optimizer.zero_grad()
        net(torch.randn(8, 64)).pow(2).mean().backward()
        optimizer.step()

    return step


def ddp():
    return training(DistributedDataParallel(model(), bucket_cap_mb=0.02))


def fsdp2():
    net = model()
    for layer in net:
        fully_shard(layer)
    fully_shard(net)
    return training(net)


def dcp():
    net = model()
    fully_shard(net)
    return lambda turn: checkpoint.save({"model": net.state_dict()}, checkpoint_id=os.path.join(FOLDER, str(turn)))


def die_later(delay_s):
    def die():
        time.sleep(delay_s)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=die, daemon=True).start()


def main():
    dist.init_process_group("horo")
    size, chosen = dist.get_world_size(), random.Random(SEED)
    victim, delay_s = chosen.randrange(size), chosen.uniform(0, 0.5)
    step = {"ddp": ddp, "fsdp2": fsdp2, "dcp": dcp}[KIND]()
    step(-1)
    dist.barrier()
    if dist.get_rank() == victim:
        die_later(delay_s)
    began = time.monotonic()
    try:
        for turn in range(1 << 30):
            step(turn)
    except Exception as error:
        chain = []
        while error is not None:
            chain.append(f"{type(error).__name__}: {error}")
            error = error.__cause__ or error.__context__
        text = " / ".join(chain)
        assert time.monotonic() - began < DEADLINE_S
        assert "PeerLost" in text and f"rank {victim} " in text, text
        print(f"raised {text.splitlines()[0][:300]}")


main()
