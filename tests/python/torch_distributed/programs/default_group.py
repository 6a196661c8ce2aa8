"""The shortest use: no import of horo; one reduction; DDP against one process in float64."""

import sys

import torch
import torch.distributed as dist
from claims_torch import check, close, equal
from torch.nn.parallel import DistributedDataParallel

WAS_IMPORTED = "horo" in sys.modules


def no_script_has_to_import_horo():
    assert not WAS_IMPORTED, "`import torch` has imported horo, and loaded its library"
    assert dist.get_backend() == "horo"
    assert type(dist.group.WORLD).__module__ == "horo.torch.distributed.process_group"


def an_all_reduce_sums():
    tensor = torch.arange(5.0) + dist.get_rank()
    dist.all_reduce(tensor)
    size = dist.get_world_size()
    equal(tensor, size * torch.arange(5.0) + sum(range(size)))


def model(dtype=torch.float32):
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Tanh(), torch.nn.Linear(20, 3)).to(dtype)


def train(net, batches):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad()
        net(batch).pow(2).mean().backward()
        optimizer.step()


def ddp_trains_as_one_process():
    rank, size = dist.get_rank(), dist.get_world_size()
    batches = [torch.randn(4 * size, 10) for _ in range(5)]
    net = DistributedDataParallel(model())
    train(net, [batch[4 * rank : 4 * rank + 4] for batch in batches])
    alone = model(torch.float64)
    train(alone, [batch.double() for batch in batches])
    for ours, expected in zip(net.parameters(), alone.parameters()):
        close(ours, expected)


def works_travel_as_bits():
    import horo

    tensor = torch.ones(3)
    for _ in range(20):
        dist.all_reduce(tensor)
    before = horo.counters()["control"]["messages_with_names"]
    for _ in range(20):
        dist.all_reduce(tensor)
    assert horo.counters()["control"]["messages_with_names"] == before


check(no_script_has_to_import_horo, an_all_reduce_sums, ddp_trains_as_one_process, works_travel_as_bits)
