"""Small models that are trained in the ways people use DistributedOptimizer.

A way gets a run, either the rank's (survive_torch_worker.py) or the oracle's: run.optimizer() wraps an optimizer,
run.backward() computes gradients that are reduced, run.accumulate() gradients that are only added to.
"""

import torch
from torch import nn


class Model(nn.Module):
    """inner, and a parameter whose gradient shows which ranks took part in a round."""

    def __init__(self, inner):
        super().__init__()
        self.who = nn.Parameter(torch.zeros(1))
        self.inner = inner


def net(seed=1):
    torch.manual_seed(seed)
    return Model(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)))


def deep(layers=40):
    torch.manual_seed(3)
    inner = [module for _ in range(layers) for module in (nn.Linear(8, 8), nn.Tanh())]
    return Model(nn.Sequential(*inner, nn.Linear(8, 4)))


def loss_of(model):
    return lambda x, y: ((model.inner(x) - y) ** 2).mean()


def plain(run, model=None, **options):
    model = run.model(model or net())
    optimizer = run.optimizer(model, **options)
    for _ in run.steps():
        optimizer.zero_grad()
        run.backward(model, loss_of(model))
        optimizer.step()
    return model


def views(run):
    return plain(run, gradient_as_bucket_view=True)


def small(run):
    return plain(run, deep())


def small_views(run):
    return plain(run, deep(), gradient_as_bucket_view=True)


def groups(run):
    return plain(run, num_groups=3)


def prioritized(run):
    return plain(run, priority="forward")


def two(run):
    """Two optimizers; the second backward reaches the parameters of both."""
    first, second = run.model(net(1)), run.model(net(2))
    making, judging = run.optimizer(first), run.optimizer(second, base=torch.optim.Adam)
    for _ in run.steps():
        judging.zero_grad()
        run.backward(second, loss_of(second))
        judging.step()
        making.zero_grad()
        run.backward(first, lambda x, y: loss_of(first)(x, second.inner(x).tanh() + y))
        making.step()
    return nn.ModuleList([first, second])


def rounds(run):
    """Two to three rounds per step; the second one is of two backward passes."""
    model = run.model(net())
    optimizer = run.optimizer(model, backward_passes_per_step=1)
    for step in run.steps():
        optimizer.zero_grad()
        run.backward(model, loss_of(model))
        with run.no_sync(optimizer):
            run.accumulate(loss_of(model))
        run.backward(model, loss_of(model))
        if step % 3 == 0:
            run.backward(model, loss_of(model))
        optimizer.step()
    return model


def accumulated(run):
    model = run.model(net())
    optimizer = run.optimizer(model, backward_passes_per_step=3)
    for _ in run.steps():
        run.accumulate(loss_of(model))
        run.accumulate(loss_of(model))
        run.backward(model, loss_of(model))
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    return model


def scaled(run):
    """GradScaler, and gradients that are clipped between synchronize() and step()."""
    model = run.model(net())
    optimizer = run.optimizer(model, base=torch.optim.Adam)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=4)
    for _ in run.steps():
        optimizer.zero_grad()
        run.backward(model, loss_of(model), scaler)
        run.synchronize(optimizer)
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        with run.skip_synchronize(optimizer):
            scaler.step(optimizer)
        scaler.update()
    return model


def metrics(run):
    """Collectives between the rounds."""
    model = run.model(net())
    optimizer = run.optimizer(model)
    for _ in run.steps():
        optimizer.zero_grad()
        run.collectives()
        run.backward(model, loss_of(model))
        optimizer.step()
        run.collectives()
    return model


def sets(run):
    """An optimizer of a process set. When the set loses a member, it is made anew of those that are left."""
    model = run.model(net())
    part = run.first_set()
    optimizer = run.optimizer(model, process_set=part)
    for _ in run.steps():
        while True:
            optimizer.zero_grad()
            is_done = run.backward_in(part, model, loss_of(model))
            if run.all_are(is_done):
                break
            part = run.next_set(part)
            optimizer = run.wrapped_anew(optimizer, model, part)
        optimizer.step()
    return model


WAYS = {
    way.__name__: way
    for way in (plain, views, small, small_views, groups, prioritized, two, rounds, accumulated, scaled, metrics, sets)
}
