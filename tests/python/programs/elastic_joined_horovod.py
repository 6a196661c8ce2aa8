"""Rank 2 joins ranks 0 and 1 at a commit of a script for Horovod (see elastic_stand_in.py). Prints the samples of each
step, and what the reset callbacks have seen."""

import elastic_stand_in
import torch
from torch.utils.data import DataLoader

import horovod.torch as hvd

SAMPLES, BATCH, EPOCHS, JOINS = 40, 2, 3, [4]

torch.set_num_threads(1)
stand_in = elastic_stand_in.StandIn(JOINS)
stand_in.start()
torch.manual_seed(hvd.rank() + 1)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(list(range(SAMPLES)), seed=2)
loader = DataLoader(range(SAMPLES), batch_size=BATCH, sampler=sampler)
DATA = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(7))
calls, changes = [], []


@hvd.elastic.run
def train(state):
    calls.append((state.epoch, state.steps, hvd.size()))
    for state.epoch in range(state.epoch, EPOCHS):
        for index, numbers in enumerate(loader):
            optimizer.zero_grad()
            model(DATA[numbers]).square().mean().backward()
            optimizer.step()
            state.steps += 1
            sampler.record_batch(index, BATCH)
            print("step", state.epoch, state.steps, *numbers.tolist(), flush=True)
            state.commit()
        sampler.set_epoch(state.epoch + 1)
    return state.steps


state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, steps=0)
state.register_reset_callbacks([lambda: changes.append((hvd.size(), len(sampler)))])
stand_in.steps = lambda: state.steps
steps = train(state)
momenta = [entry["momentum_buffer"] for entry in optimizer.state_dict()["state"].values()]
values = [value.tolist() for value in (*model.state_dict().values(), *momenta)]
found = hvd.allgather_object((values, steps, state._commits))
assert all(one == found[0] for one in found), found
assert hvd.size() == 3
assert calls == ([(0, 0, 2)] * (stand_in.me < 2) + [(0, 4, 3)]), calls
assert changes == [(3, 8)], changes  # 40 - 16 samples for three ranks
assert len(stand_in.synced) == (stand_in.me == 2)
print("end", flush=True)
