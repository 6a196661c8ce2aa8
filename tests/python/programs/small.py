"""Parameters with small gradients, their optimizer, and steps that are checked."""

import contextlib

import torch
from claims import same_bits

import horo.torch as hvd
from horo import _default
from horo.torch import gradient_table

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
    library, gradient_table.quick = gradient_table.quick, Counting(gradient_table.quick)
    try:
        yield gradient_table.quick.calls
    finally:
        gradient_table.quick = library


def params_of(name, count=COUNT):
    return {f"{name} {i}": torch.nn.Parameter(torch.zeros(2 + i % 5)) for i in range(count)}


def optimizer_of(params, **options):
    return hvd.DistributedOptimizer(
        torch.optim.SGD(list(params.values()), lr=1.0), list(params.items()), op=hvd.Sum, **options
    )


def backward(params, used=None, factor=1.0):
    """The gradient of used parameter i becomes factor * (i + rank). Gradients are computed in reverse order of use."""
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
    """Abandons the gradients in flight and waits until their works have ended."""
    optimizer.set_backward_passes_per_step(passes)
    session = _default.session()
    while not all(session.has_ended(work) for work in session.dropped):
        pass
