"""What an elastic job refuses, by name."""

import torch
from torch import nn

import horo.torch as hvd
from horo import _default

hvd.init()


def wrapped(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)


def step(model, x, **options):
    optimizer = wrapped(model, **options)
    model(x).sum().backward()
    optimizer.step()


def refused(call, kind, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError(f"{words} was not refused")


x = torch.ones(2, 4)
refused(lambda: wrapped(nn.Linear(4, 4), cross_barrier=True), ValueError, "cross_barrier", "--min-np")
for codec in (hvd.Compression.int8,):
    refused(lambda: step(nn.Linear(4, 4), x, compression=codec), ValueError, "codec", "--min-np")  # noqa: B023
    refused(lambda: hvd.allreduce(x, compression=codec), ValueError, "codec", "--min-np")  # noqa: B023
words = torch.tensor([1, 2])
refused(lambda: step(nn.Embedding(9, 4, sparse=True), words), NotImplementedError, "sparse_as_dense")
step(nn.Embedding(9, 4, sparse=True), words, sparse_as_dense=True)
refused(lambda: _default.session().rebuild(), ValueError, "rebuild")
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
print("end")
