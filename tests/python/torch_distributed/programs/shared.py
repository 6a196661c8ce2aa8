"""horo.init() and a default group share the session; ranks that differ are refused; a group can be made again."""

import os
import tempfile

import torch
import torch.distributed as dist
from claims_torch import DEADLINE, equal, raises

import horo
import horo.torch

horo.torch.init()
for _ in range(3):
    dist.init_process_group("horo", timeout=DEADLINE)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    equal(tensor, torch.full((2,), 2.0))
    equal(horo.torch.allreduce(torch.ones(1), op=1, name="beside"), torch.full((1,), 2.0))
    dist.destroy_process_group()
    assert horo.is_initialized()
    horo.torch.barrier()  # rank 0 has closed its store before rank 1 looks for the next one
store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
with raises(ValueError, "horo.init()", f"rank {horo.rank()} of 2", "rank 0 of 1"):
    dist.init_process_group("horo", store=store, rank=0, world_size=1)
rank, size = horo.rank(), horo.size()
horo.shutdown()
for number in range(2):
    file = dist.FileStore(f"{tempfile.gettempdir()}/horo_shared_{os.environ['MASTER_PORT']}_{number}", size)
    dist.init_process_group("horo", store=file, rank=rank, world_size=size, timeout=DEADLINE)
    dist.barrier()
    dist.destroy_process_group()
    assert not horo.is_initialized()
