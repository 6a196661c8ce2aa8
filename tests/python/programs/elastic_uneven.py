"""Rank 1 of two takes a batch and does not train with it: both ranks raise Mismatch in their next backward. Then both
train with sums of their own, without a DistributedOptimizer, and rank 1 dies after a batch."""

import os
import signal

import torch

import horo.torch as horo

horo.init()
me = horo.rank()
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = horo.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = horo.elastic.Sampler(40, batch_size=2)
loader = torch.utils.data.DataLoader(range(40), batch_sampler=sampler)
state = horo.elastic.State(model=model, optimizer=optimizer, sampler=sampler, taken=0)


@horo.elastic.run
def train(state):
    for _ in state.passes(1):
        for batch in state.batches(loader):
            state.taken += 1
            if state.taken == 3 and me == 1:
                continue
            model(batch.float().unsqueeze(1)).mean().backward()
            optimizer.step()


try:
    train(state)
except horo.Mismatch as error:
    print("caught", me, state.taken, error, flush=True)
optimizer = model = None
del state
sampler = horo.elastic.Sampler(20, batch_size=2)
loader = torch.utils.data.DataLoader(range(20), batch_sampler=sampler)
state = horo.elastic.State(sampler=sampler, weights=torch.zeros(3))


@horo.elastic.run
def sums(state):
    for _ in state.passes(1):
        for number, batch in enumerate(state.batches(loader)):
            total = horo.allreduce(batch.sum(), op=horo.Sum)
            print("batch", me, number, int(total), *batch.tolist(), flush=True)
            if me == 1 and number == 2:
                os.kill(os.getpid(), signal.SIGKILL)


sums(state)
