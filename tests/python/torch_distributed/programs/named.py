"""A script that names another backend than horo, or none, and gets horo. Arguments: backends, or ""."""

import sys

import torch
import torch.distributed as dist
from claims_torch import DEADLINE, equal
from torch.distributed.device_mesh import init_device_mesh


def check(backend):
    dist.init_process_group(backend, timeout=DEADLINE)
    made = [dist.group.WORLD, dist.new_group(backend=backend), init_device_mesh("cpu", (2,)).get_group()]
    kinds = {type(group).__module__ for group in made}
    assert kinds == {"horo.torch.distributed.process_group"}, kinds
    if backend is not None:
        assert dist.get_backend() == backend
        dist.monitored_barrier()
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    equal(tensor, torch.full((3,), 2.0))
    dist.destroy_process_group()


for name in sys.argv[1:]:
    check(name or None)
