"""A world of one rank: every collective is allowed and returns its input."""

import claims
import torch
from claims import same_bits, value

import horo.torch as hvd


def every_collective_gives_back_its_input():
    tensor = value(0, torch.float32, (5, 2))
    for result in (
        hvd.allreduce(tensor),
        hvd.allreduce_(tensor.clone(), op=hvd.Sum),
        hvd.allreduce(tensor, order="fast"),
        hvd.allgather(tensor),
        hvd.broadcast(tensor, 0),
        hvd.reducescatter(tensor),
        hvd.grouped_allreduce([tensor])[0],
        hvd.grouped_allgather([tensor])[0],
        hvd.grouped_reducescatter([tensor])[0],
        hvd.alltoall(tensor),
        hvd.alltoall(tensor, [5])[0],
        hvd.reduce(tensor, 0),
        hvd.gather(tensor, 0),
        hvd.scatter(tensor, 0),
        hvd.scatter(tensor, 0, [5]),
        hvd.broadcast_object(tensor),
        hvd.allgather_object(tensor)[0],
    ):
        same_bits(result, tensor)
    hvd.barrier()
    assert hvd.join() == 0
    with claims.raises(ValueError, "itself"):
        hvd.send(tensor, 0, name="to myself")


def the_optimizer_trains():
    param = torch.nn.Parameter(torch.zeros(2))
    unused = torch.nn.Parameter(torch.zeros(2))
    named = [("param", param), ("unused", unused)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param, unused], lr=1.0), named)
    for _ in range(3):
        optimizer.zero_grad()
        param.sum().backward()
        optimizer.step()
    assert param.tolist() == [-3.0, -3.0] and unused.grad is None


claims.check(every_collective_gives_back_its_input, the_optimizer_trains)
