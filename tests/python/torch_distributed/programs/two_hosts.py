"""Ranks that count as two hosts. Arguments: "refused" and a file for the store, which no rank serves; or "joined"."""

import os
import sys

os.environ["HORO_HOST_ID"] = f"host {os.environ['RANK']}"

import torch
import torch.distributed as dist
from claims_torch import DEADLINE, equal, raises

if sys.argv[1] == "refused":
    with raises(ValueError, "2 hosts", "HORO_KEY_FILE", "HORO_TRUST_STORE=1", "every process that reads the store"):
        meeting = {"init_method": f"file://{sys.argv[2]}", "rank": int(os.environ["RANK"]), "world_size": 2}
        dist.init_process_group("horo", timeout=DEADLINE, **meeting)
else:
    dist.init_process_group("horo", timeout=DEADLINE)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    equal(tensor, torch.full((3,), 2.0))
    dist.destroy_process_group()
