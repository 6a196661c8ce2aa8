"""Ranks 2 and 3 join ranks 0 and 1 in the middle of a pass (see elastic_stand_in.py); all train on with equal bits, and
with those of one process that is fed the same samples. Prints the samples of each step."""

import hashlib

import elastic_stand_in
import torch
from torch import nn
from torch.utils.data import DataLoader

import horo.torch as horo
from horo import _default

SAMPLES, BATCH, PASSES = 203, 4, 4
JOINS = [7, 31]

torch.set_num_threads(1)
stand_in = elastic_stand_in.StandIn(JOINS)
stand_in.start()
DATA = torch.randn(SAMPLES, 6, generator=torch.Generator().manual_seed(7))


def made():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=300)
    averaged = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=10)
    return model, optimizer, schedule, averaged, scaler


model, optimizer, schedule, averaged, scaler = made()
if horo.rank() >= 2:  # what a joining rank has does not matter
    with torch.no_grad():
        for param in model.parameters():
            param.fill_(float("nan"))
optimizer = horo.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), priority="forward")
sampler = horo.elastic.Sampler(SAMPLES, batch_size=BATCH, seed=3)
loader = DataLoader(list(zip(range(SAMPLES), DATA)), batch_sampler=sampler, num_workers=1, persistent_workers=True)
fields = {"model": model, "optimizer": optimizer, "schedule": schedule, "averaged": averaged, "scaler": scaler}
state = horo.elastic.State(**fields, sampler=sampler, done=0, history=[], buffers="mean")
changes = []
state.on_change(lambda change: changes.append((change.lost, change.joined, change.old_size, change.size, change.step)))
stand_in.steps = lambda: state.done


def step(x):
    """One step of training."""
    optimizer.zero_grad()
    scaler.scale(model(x).square().mean()).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
    schedule.step()
    averaged.update_parameters(model)


@horo.elastic.run
def train(state):
    stand_in.watch(state)
    for number in state.passes(PASSES):
        for indices, x in state.batches(loader):
            step(x)
            state.done += 1
            state.history = [*state.history, float(torch.rand(()) * 0)]
            print("step", number, state.done, *indices.tolist(), flush=True)


def digest_of(values):
    return hashlib.sha256(b"".join(value.detach().contiguous().numpy().tobytes() for value in values)).hexdigest()


train(state)
momenta = [value for entry in optimizer.state_dict()["state"].values() for value in entry.values()]
tensors = [*model.state_dict().values(), *averaged.state_dict().values(), *momenta]
digest = digest_of([*tensors, torch.tensor(schedule.get_last_lr(), dtype=torch.float64)])
digests = horo.allgather_object((digest, scaler.state_dict(), len(state.history), state.done))
assert len(set(map(str, digests))) == 1, digests
assert horo.size() == 4 and all(torch.isfinite(one.double()).all() for one in tensors)
first = 7 if stand_in.me < 3 else 31
assert [change[1:4] for change in changes] == [((2,), 2, 3), ((3,), 3, 4)][stand_in.me == 3 :], changes
assert len(stand_in.synced) == (stand_in.me >= 2), stand_in.synced
print("end", digest, *stand_in.synced, flush=True)
_default.shutdown()
