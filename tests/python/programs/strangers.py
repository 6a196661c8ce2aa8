"""Trains small models as the scripts of strangers do, and prints the sha256 of the parameters of each way.

strangers.py STEP WAY...: in this step of each of these ways the last rank kills itself, if there are others.
"""

import contextlib
import copy
import hashlib
import os
import signal
import sys

import torch
from torch import nn

import horo.torch as hvd

STEPS = 6
KILL_STEP, KILL_WAYS = (int(sys.argv[1]), sys.argv[2:]) if len(sys.argv) > 1 else (None, [])
torch.set_num_threads(1)
hvd.init()
AT_START = hvd.rank(), hvd.size()


def die_at(step):
    if step == KILL_STEP and way.__name__ in KILL_WAYS and hvd.rank() == hvd.size() - 1 > 0:
        os.kill(os.getpid(), signal.SIGKILL)


def wrapped(model, base=torch.optim.SGD, settings=None, **options):
    optimizer = base(model.parameters(), **(settings or {"lr": 0.01}))
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    if base is not torch.optim.LBFGS:
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return optimizer


def net(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))


def batches(count=STEPS):
    data = torch.Generator().manual_seed(AT_START[0])
    for step in range(count):
        yield step, torch.randn(4, 8, generator=data), torch.randn(4, 4, generator=data)


def loss_of(model, x, y):
    return ((model(x) - y) ** 2).mean()


def plain(**options):
    """Options: see DistributedOptimizer. A metric and a barrier come between the steps."""
    model = net()
    optimizer = wrapped(model, **options)
    for step, x, y in batches():
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        die_at(step)
        optimizer.step()
        hvd.allreduce(loss.detach(), name="loss")
        hvd.broadcast(torch.ones(3), root_rank=0, name="ones")
        hvd.allgather(torch.ones(step % 3 + 1, 2))
        hvd.barrier()
    return model


def views():
    return plain(gradient_as_bucket_view=True)


def groups():
    return plain(num_groups=2)


def prioritized():
    return plain(priority="forward")


def scaled():
    """torch's GradScaler: the CPU's scales too."""
    model = net()
    optimizer = wrapped(model, torch.optim.Adam)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    for step, x, y in batches():
        optimizer.zero_grad()
        scaler.scale(loss_of(model, x, y)).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        die_at(step)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    return model


def accumulated():
    model = net()
    optimizer = wrapped(model, backward_passes_per_step=2)
    for step, x, y in batches():
        loss_of(model, x, y).backward()
        die_at(step)
        loss_of(model, y @ torch.ones(4, 8), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    return model


def quiet():
    """no_sync() around all backward passes of a step but the last."""
    model = net()
    optimizer = wrapped(model)
    for step, x, y in batches():
        with optimizer.no_sync() if hasattr(optimizer, "no_sync") else contextlib.nullcontext():
            loss_of(model, x, y).backward()
        die_at(step)
        loss_of(model, x + 1, y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def adversarial():
    """Two models with an optimizer each; the backward of one reaches both."""
    maker, judge = net(1), nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    making, judging = wrapped(maker), wrapped(judge, torch.optim.Adam)
    for step, x, y in batches():
        judging.zero_grad()
        (judge(maker(x).detach()).mean() - judge(y).mean()).backward()
        judging.step()
        making.zero_grad()
        (-judge(maker(x)).mean()).backward()
        die_at(step)
        making.step()
    return nn.ModuleList([maker, judge])


def closures():
    model = net()
    optimizer = wrapped(model, torch.optim.LBFGS, {"lr": 0.1, "max_iter": 3})
    for step, x, y in batches(3):

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            return loss

        die_at(step)
        optimizer.step(closure)
    return model


class Broken(torch.autograd.Function):
    """Its backward raises an exception if it was asked to."""

    @staticmethod
    def forward(ctx, x, fails):
        ctx.fails = fails
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.fails:
            raise OverflowError("a bad sample")
        return gradient, None


def caught():
    """In the second step the first rank's backward fails; all ranks skip the step."""
    model = net()
    optimizer = wrapped(model)
    for step, x, y in batches():
        optimizer.zero_grad()
        hidden = model[1](model[0](x))
        hidden = Broken.apply(hidden, step == 1 and AT_START[0] == 0)
        try:
            ((model[4](model[3](model[2](hidden))) - y) ** 2).mean().backward()
        except (OverflowError, hvd.Mismatch):
            continue
        die_at(step)
        optimizer.step()
    return model


def discarded():
    """zero_grad() comes between a backward and the step."""
    model = net()
    optimizer = wrapped(model, torch.optim.SGD, {"lr": 0.01, "momentum": 0.9})
    for step, x, y in batches():
        loss_of(model, 3 * x, y).backward()
        optimizer.zero_grad()
        die_at(step)
        loss_of(model, x, y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def averaged():
    """An average of weights beside the model, and a set of all ranks."""
    model = net()
    slow = copy.deepcopy(model)
    optimizer = wrapped(model, torch.optim.AdamW, {"lr": 0.01})
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step, x, y in batches():
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
        schedule.step()
        die_at(step)
        for mine, other in zip(slow.parameters(), model.parameters()):
            mine.data.lerp_(other.data, 0.1)
    return slow


WAYS = (
    *(plain, views, groups, prioritized, scaled, accumulated, quiet, adversarial, closures, caught, discarded),
    averaged,
)

for way in WAYS:
    trained = way()
    found = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in trained.parameters())).hexdigest()
    assert hvd.allgather_object(found) == [found] * hvd.size(), way.__name__
    if hvd.rank() == 0:
        print("way", way.__name__, found, hvd.size(), flush=True)
hvd.shutdown()
