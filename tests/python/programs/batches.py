"""Which batches count as those of a step: each once, whether loaders are nested, ahead or ended (docs/scaling.md)."""

import itertools

import torch

import horo.torch as horo

horo.init()
model = torch.nn.Linear(4, 1)
optimizer = horo.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))


def loader(samples, batch=8):
    return torch.utils.data.DataLoader(torch.ones(samples, 4), batch_size=batch)


def ahead(batches):
    """Takes each batch before it gives the one before."""
    batches = iter(batches)
    given = next(batches)
    for taken in batches:
        yield given
        given = taken
    yield given


class Ahead:
    """Has taken a batch when a pass begins."""

    def __init__(self, batches):
        self._batches = batches

    def __iter__(self):
        batches = iter(self._batches)
        return itertools.chain([next(batches)], batches)


def in_pairs(batches):
    batches = iter(batches)
    for one in batches:
        yield torch.cat([one, next(batches)])


def train(*batches):
    """One step; its samples. None: not known."""
    optimizer.zero_grad()
    sum(model(x).square().mean() for x in batches).backward()
    optimizer.step()
    ended = horo.last_step()  # None: the first end begins the first step
    return ended and ended["samples"]


def check(got, expected):
    assert got == expected, (got, expected)


check([train(torch.ones(1, 4)) for _ in range(2)], [None, None])
# Nested loaders.
check([train(x) for x in horo.input(loader(24))], [8, 8, 8])
check([train(x) for x in horo.input(horo.input(loader(20)))], [8, 8, 4])
check([train(x) for x in horo.input(in_pairs(loader(64)))], [16, 16, 16, 16])
check([train(x) for x in torch.utils.data.DataLoader(loader(20).dataset, 8)], [8, 8, 4])
check([train(x) for x in loader(20)], [8, 8, 4])


# Loaders that are ahead.
class Eager(torch.utils.data.IterableDataset):
    """Has taken a batch of another loader when a pass begins."""

    def __init__(self, batches):
        self._batches = batches

    def __iter__(self):
        batches = iter(self._batches)
        return itertools.chain(next(batches), itertools.chain.from_iterable(batches))


check([train(x) for x in torch.utils.data.DataLoader(Eager(loader(20)), 8)], [8, 8, 4])
check([train(x) for x in horo.input(ahead(loader(28)))], [8, 8, 8, 4])
check([train(x) for x in horo.input(Ahead(loader(28)))], [8, 8, 8, 4])
check([train(x) for x in ahead(loader(28))], [16, 8, 4, 0])  # by when the loader gives them
check([train(x) for x in ahead(loader(8))], [8])
# Several batches of one backward.
batches = iter(loader(32))
check([train(next(batches), next(batches)) for _ in range(2)], [16, 16])
check(train(*loader(20)), 20)
check(train(*loader(20), *horo.input(loader(8))), 28)
# Another iterator in the memory of one that is freed.
for _ in range(4):
    x = next(iter(horo.input(loader(8))))
    for other in horo.input([torch.ones(100, 4)] * 2):  # a validation with gradients
        model(other)
    check(train(x), 8)
# What a backward does not use.
for x in loader(16):
    with torch.no_grad():
        for other in loader(100, 100):
            model(other)
            break
    for other in horo.input(loader(200, 100)):
        model(other)
    check(train(x), 8)
for _ in loader(100, 100):
    break
check(train(next(iter(loader(8)))), 108)  # nothing tells that the first one was for no backward
check(train(torch.ones(1, 4)), None)
# Batches without a shape that is known.
odd = [torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged), "abc", None]
for _ in horo.input(odd):
    check(train(torch.ones(1, 4)), None)
check([train(x) for x in loader(16)], [8, 8])
