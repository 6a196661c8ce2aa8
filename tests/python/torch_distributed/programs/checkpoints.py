"""A checkpoint of torch (DCP) of a model under FSDP2: `save` on some ranks, `load` on others."""

import os
import sys

import torch
import torch.distributed as dist
from claims_torch import check, equal
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.fsdp import fully_shard

ACTION, FOLDER = sys.argv[1:3]


def model(seed):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 5))
    fully_shard(net)
    return net


def whole(net):
    return {name: each.full_tensor() for name, each in net.named_parameters()}


def save():
    checkpoint.save({"model": model(1).state_dict()}, checkpoint_id=os.path.join(FOLDER, "saved"))
    later = checkpoint.async_save({"model": model(2).state_dict()}, checkpoint_id=os.path.join(FOLDER, "later"))
    later.result()


def load():
    for seed, name in ((1, "saved"), (2, "later")):
        net = model(9)
        state = {"model": net.state_dict()}
        checkpoint.load(state, checkpoint_id=os.path.join(FOLDER, name))
        net.load_state_dict(state["model"])
        expected = whole(model(seed))
        for key, found in whole(net).items():
            equal(found, expected[key])
    dist.barrier()


check(save if ACTION == "save" else load)
