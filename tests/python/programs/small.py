"""Parameters with small gradients, their optimizer, and steps that are checked."""

import contextlib

import torch
from claims import same_bits

import horo.torch as hvd
from horo import _default
from horo.torch import bursts, gradients

COUNT = 200
CALLS = ("horo_submit", "horo_submit_many_in_place")


class Counting:
    """A library that counts the calls of some functions."""

    def __init__(self, library):
        self._library = library
        self.calls = dict.fromkeys(CALLS, 0)

    def __getattr__(self, name):
        function = getattr(self._library, name)
        if name not in CALLS:
            return function

        def call(*arguments):
            self.calls[name] += 1
            return function(*arguments)

        return call


@contextlib.contextmanager
def counting():
    library = gradients.quick
    gradients.quick = bursts.quick = Counting(library)
    try:
        yield gradients.quick.calls
    finally:
        gradients.quick = bursts.quick = library


def hooked(params):
    """How many parameters have a hook."""
    return sum(bool(param._post_accumulate_grad_hooks) for param in params.values())


def silent(name, count=COUNT):
    """Parameters of which few have hooks any more, and their optimizer."""
    params = params_of(name, count)
    optimizer = optimizer_of(params)
    for i in range(6):
        step(params, optimizer, i + 1.0)
    assert hooked(params) <= 3 * -(-count // bursts.MOST), hooked(params)
    return params, optimizer


def params_of(name, count=COUNT):
    return {f"{name} {i}": torch.nn.Parameter(torch.zeros(2 + i % 5)) for i in range(count)}


def optimizer_of(params, **options):
    return hvd.DistributedOptimizer(
        torch.optim.SGD(list(params.values()), lr=1.0), list(params.items()), op=hvd.Sum, **options
    )


def backward(params, used=None, factor=1.0):
    """The i-th gradient of those that are used becomes factor * (i + rank); those that are used last come first."""
    used = list(enumerate(params.values())) if used is None else used
    loss = 0.0
    for i, param in used:
        loss = loss + factor * (i + hvd.rank()) * param.sum()
    loss.backward()


def sum_of(i, ranks=None):
    ranks = range(hvd.size()) if ranks is None else ranks
    return float(sum(i + rank for rank in ranks))


def check(params, factor=1.0):
    for i, param in enumerate(params.values()):
        same_bits(param.grad, torch.full_like(param, factor * sum_of(i)))


def step(params, optimizer, factor=1.0):
    optimizer.zero_grad()
    backward(params, factor=factor)
    optimizer.synchronize()
    check(params, factor)
    with optimizer.skip_synchronize():
        optimizer.step()


def start_over(optimizer, passes=1):
    """What is in flight ends, unseen."""
    optimizer.set_backward_passes_per_step(passes)
    session = _default.session()
    while not all(session.has_ended(work) for work in session.dropped):
        pass
