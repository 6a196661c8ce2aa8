"""DistributedDataParallel over the backend "horo" on a device: all ranks have the same bits."""

import place
import torch
import torch.distributed as dist
from place import DEVICE, bytes_of

import horo.torch as hvd

place.start()
dist.init_process_group("horo")
torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(40, 400), torch.nn.GELU(), torch.nn.Linear(400, 4)).to(DEVICE)
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(20):
    optimizer.zero_grad()
    generator = torch.Generator().manual_seed(50 * step + dist.get_rank())
    model(torch.randn(16, 40, generator=generator).to(DEVICE)).square().mean().backward()
    optimizer.step()
total = torch.full((5,), float(dist.get_rank() + 1), device=DEVICE)
dist.all_reduce(total)
every = hvd.allgather_object(b"".join(map(bytes_of, model.parameters())))
place.tell(
    bits_alike=len(set(every)) == 1,
    all_reduce=total.tolist() == [sum(range(1, dist.get_world_size() + 1))] * 5,
    backend=dist.get_backend(),
)
dist.destroy_process_group()
