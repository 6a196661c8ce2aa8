"""Ranks stop themselves in the middle of a step, are evicted, continue, and join again in their processes. All end some
steps after the last one is back. Arguments: "state" or "horovod", the number of joins, and the stops as
rank:step:place, where place is "backward" or "scaled" (before the optimizer's step, with a scaler that has unscaled).
Prints the process of each rank at the start and the end, and what it has at the end."""

import os
import signal
import subprocess
import sys
import time

import torch
from torch import nn

import horo.torch as horo
import horovod.torch as hvd

KIND, JOINS = sys.argv[1], int(sys.argv[2])
STOPS = {(int(rank), int(step), place) for rank, step, place in (each.split(":") for each in sys.argv[3:])}
STOP_S, MORE = 3, 12  # seconds that a rank stands still; steps after the last join
SAMPLES, BATCH = 60, 2

torch.set_num_threads(1)
horo.init()
BEGAN_AS = horo.rank()
print("begins", BEGAN_AS, os.getpid(), flush=True)


def stop_if(step, place):
    if (BEGAN_AS, step, place) in STOPS:
        STOPS.remove((BEGAN_AS, step, place))
        subprocess.Popen(["sh", "-c", f"sleep {STOP_S}; kill -CONT {os.getpid()}"], stdout=-3, stderr=-3)
        os.kill(os.getpid(), signal.SIGSTOP)


class Stopping(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, gradient):
        stop_if(state.steps, "backward")
        return gradient


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
optimizer = horo.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
horo.broadcast_parameters(model.state_dict(), root_rank=0)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
data = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(7))
fields = {"model": model, "optimizer": optimizer, "steps": 0, "last_join": -1}


def run_step(state, x):
    """The gradients are set to zero behind the step, so what an interrupted step has left would count."""
    assert all(param.grad is None for param in model.parameters())
    loss = Stopping.apply(model(x)).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer) if KIND == "state" else optimizer.synchronize()
    stop_if(state.steps, "scaled")
    if KIND == "state":
        scaler.step(optimizer)
        scaler.update()
    else:
        with optimizer.skip_synchronize():
            optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    state.steps += 1
    time.sleep(0.02)


if KIND == "state":
    sampler = horo.elastic.Sampler(SAMPLES, batch_size=BATCH, seed=3)
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, num_workers=1, persistent_workers=True)
    state = horo.elastic.State(sampler=sampler, scaler=scaler, joins=0, **fields)

    @state.on_change
    def count(change):
        if change.joined:
            state.joins, state.last_join = state.joins + len(change.joined), state.steps

    @horo.elastic.run
    def train(state):
        for number in state.passes(10_000):
            for x in state.batches(loader):
                run_step(state, x)
                if state.joins == JOINS and state.steps == state.last_join + MORE:
                    return

else:
    sampler = hvd.elastic.ElasticSampler(data, shuffle=False)
    state = hvd.elastic.TorchState(sampler=sampler, sizes=[], **fields)
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=sampler)
    state.register_reset_callbacks([lambda: state.sizes.append(hvd.size())])

    @hvd.elastic.run
    def train(state):
        if state.sizes and state.sizes[-1] == JOINS:  # of the ranks at the start
            state.last_join = state.steps
        while state.last_join < 0 or state.steps < state.last_join + MORE:
            for index, x in enumerate(loader):
                run_step(state, x)
                sampler.record_batch(index, BATCH)
                state.commit()
                if 0 <= state.last_join and state.steps >= state.last_join + MORE:
                    break
            sampler.set_epoch(sampler.epoch + 1)


train(state)
moments = [entry[name] for entry in optimizer.state_dict()["state"].values() for name in ("exp_avg", "exp_avg_sq")]
values = [*(param.detach() for param in model.parameters()), *moments]
print("ends", horo.rank(), os.getpid(), state.steps, sum(float(one.double().sum()) for one in values).hex(), flush=True)
