# TorchState of a model, two optimizers, a scheduler, a sampler and counters. Each value begins as that of the worker:
# a state with parts of two workers is seen. All follow from the steps: a state with an older part is seen, too.
import os

import torch

import horovod.torch as hvd

SAMPLES, BATCH, EPOCHS, WORKERS = 24, 2, 3, 3

hvd.init()
worker = int(os.environ["HORO_RANK"])


class Counts(torch.nn.Module):
    """The gradient of `steps` is 1; that of `seen` is -1 for each sample."""

    def __init__(self):
        super().__init__()
        self.steps = torch.nn.Parameter(torch.full((3,), float(worker)))
        self.seen = torch.nn.Parameter(torch.zeros(EPOCHS, SAMPLES))
        self.register_buffer("origin", torch.tensor(worker))

    def forward(self, epoch, numbers):
        return self.steps.sum() - self.seen[epoch, numbers].sum()


def first_rate(origin):
    return (origin + 1) / 64


model = Counts()
average = torch.optim.SGD([model.steps], lr=first_rate(worker), momentum=1.0)
schedule = torch.optim.lr_scheduler.MultiplicativeLR(average, lambda _: 0.5)
average = hvd.DistributedOptimizer(average, named_parameters=[("steps", model.steps)])
total = torch.optim.SGD([model.seen], lr=1.0)
total = hvd.DistributedOptimizer(total, named_parameters=[("seen", model.seen)], op=hvd.Sum)
sampler = hvd.elastic.ElasticSampler(range(SAMPLES), seed=1)
loader = torch.utils.data.DataLoader(range(SAMPLES), batch_size=BATCH, sampler=sampler)
sizes = []


def check(state):
    """All parts of the state have one origin and one age."""
    origin = state.origin
    value, rate, velocity = float(origin), first_rate(origin), 0.0
    for steps in state.steps:
        for _ in range(steps):
            velocity += 1
            value -= rate * velocity
        rate /= 2
    found = model.origin.item(), *model.steps.tolist(), average.param_groups[0]["lr"], *schedule.base_lrs
    assert found == (origin, value, value, value, 2 * rate, first_rate(origin)), (found, state.steps, value, rate)
    momentum = average.state[model.steps].get("momentum_buffer", torch.zeros(3))
    assert momentum.tolist() == [velocity] * 3, (momentum, velocity)


@hvd.elastic.run
def train(state):
    check(state)
    while len(state.steps) <= EPOCHS:
        for batch, numbers in enumerate(loader):
            average.zero_grad()
            total.zero_grad()
            model(len(state.steps) - 1, numbers).backward()
            average.step()
            total.step()
            state.steps = [*state.steps[:-1], state.steps[-1] + 1]
            sampler.record_batch(batch, BATCH)
            state.commit() if state.steps[-1] % 2 else state.check_host_updates()
        while hvd.size() < WORKERS:
            state.check_host_updates()
        state.check_host_updates()
        schedule.step()
        sampler.set_epoch(len(state.steps))
        state.steps = [*state.steps, 0]
        state.commit()


state = hvd.elastic.TorchState(
    model, average, total=total, schedule=schedule, sampler=sampler, origin=worker, steps=[0]
)
state.register_reset_callbacks([lambda: sizes.append(hvd.size())])
train(state)
check(state)
assert (model.seen > 0).all(), model.seen
print("end", state.origin, state.steps, model.steps[0].item(), model.seen.sum().item(), state._commits)
