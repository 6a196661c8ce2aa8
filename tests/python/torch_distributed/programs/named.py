"""A script that names another backend than horo, or none, and gets horo. Argument: the backend, or ""."""

import sys

import torch
import torch.distributed as dist
from claims_torch import DEADLINE, equal
from torch.distributed.device_mesh import init_device_mesh

BACKEND = sys.argv[1] or None

dist.init_process_group(BACKEND, timeout=DEADLINE)
kinds = {type(dist.group.WORLD), type(dist.new_group(backend=BACKEND)), type(init_device_mesh("cpu", (2,)).get_group())}
assert {kind.__module__ for kind in kinds} == {"horo.torch.distributed.process_group"}, kinds
if BACKEND is not None:
    assert dist.get_backend() == BACKEND
    dist.monitored_barrier()
tensor = torch.ones(3)
dist.all_reduce(tensor)
equal(tensor, torch.full((3,), 2.0))
dist.destroy_process_group()
