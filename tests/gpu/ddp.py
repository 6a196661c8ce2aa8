"""DistributedDataParallel over the backend "horo" on a device: all ranks have the same bits. Calls of torch.distributed
have those of the CPU."""

import place
import torch
import torch.distributed as dist
from comparing import Comparisons
from place import DEVICE, bytes_of

import horo.torch as hvd


def trained():
    """Whether all ranks have the same parameters after some steps."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(40, 400), torch.nn.GELU(), torch.nn.Linear(400, 4)).to(DEVICE)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(20):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(50 * step + dist.get_rank())
        model(torch.randn(16, 40, generator=generator).to(DEVICE)).square().mean().backward()
        optimizer.step()
    return len(set(hvd.allgather_object(b"".join(map(bytes_of, model.parameters()))))) == 1


def all_reduce(x):
    dist.all_reduce(x)
    return x


def maximum(x):
    work = dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True)
    work.wait()
    return x


def broadcast(x):
    dist.broadcast(x, dist.get_world_size() - 1)
    return x


def reduce(x):
    dist.reduce(x, 0)
    return x if dist.get_rank() == 0 else None  # others have what torch leaves to backends


def all_gather(x):
    found = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(found, x)
    return torch.cat(found)


def all_gather_into_tensor(x):
    found = x.new_empty(dist.get_world_size() * len(x), *x.shape[1:])
    dist.all_gather_into_tensor(found, x)
    return found


def gather(x):
    found = [torch.empty_like(x) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
    dist.gather(x, found, 0)
    return None if found is None else torch.cat(found)


def scatter(x):
    parts = [x + number for number in range(dist.get_world_size())] if dist.get_rank() == 0 else None
    found = torch.empty_like(x)
    dist.scatter(found, parts, 0)
    return found


def reduce_scatter_tensor(x):
    found = x.new_empty(len(x) // dist.get_world_size(), *x.shape[1:])
    dist.reduce_scatter_tensor(found, x)
    return found


def all_to_all_single(x):
    """Rank r sends r + 1 rows to each."""
    rank, size = dist.get_rank(), dist.get_world_size()
    found = x.new_empty(sum(range(1, size + 1)), *x.shape[1:])
    dist.all_to_all_single(found, x[: size * (rank + 1)].contiguous(), list(range(1, size + 1)), [rank + 1] * size)
    return found


def messages(x):
    """In a ring."""
    rank, size, found = dist.get_rank(), dist.get_world_size(), torch.empty_like(x)
    ops = [dist.P2POp(dist.isend, x, (rank + 1) % size), dist.P2POp(dist.irecv, found, (rank - 1) % size)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return found


CALLS = [all_reduce, maximum, broadcast, reduce, all_gather, all_gather_into_tensor, gather, scatter]
CALLS += [reduce_scatter_tensor, all_to_all_single, messages]


def compared():
    """Each call, of each type."""
    comparisons, rows = Comparisons(), 4 * dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        generator = torch.Generator().manual_seed(dist.get_rank())
        tensor = (100 * torch.randn(rows, 33, generator=generator)).to(dtype)
        for call in CALLS:
            comparisons.compare(call.__name__, f"{call.__name__} of {dtype}", call, tensor)
    return comparisons.of_all_ranks()


place.start()
dist.init_process_group("horo")
bits_alike = trained()
counts, wrong = compared()
place.tell(
    bits_alike=bits_alike,
    calls=sum(counts.values()),
    wrong=wrong[:20],
    wrong_in_all=len(wrong),
    backend=dist.get_backend(),
)
dist.destroy_process_group()
