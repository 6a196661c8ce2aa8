"""Trains a small convolutional net on scikit-learn's handwritten digits, while ranks die and join.

Needs: pip install torch scikit-learn rich. Run it with: horo run -n 4 --min-np 2 python examples/digits_elastic.py
It also runs with a fixed number of ranks, by torchrun, and alone. With a folder as an argument the state is kept there:
after the death of all ranks the same command, also with another number of ranks, goes on where they were.
"""

import hashlib
import sys

import rich.progress
import sklearn.datasets
import torch
from torch import nn

import horo.torch as horo

PASSES = 15

horo.init()
torch.manual_seed(0)
images, labels = sklearn.datasets.load_digits(return_X_y=True)
images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
labels = torch.tensor(labels)
is_test = torch.arange(len(labels)) % 5 == 0
test_images, test_labels = images[is_test], labels[is_test]
data = torch.utils.data.TensorDataset(images[~is_test], labels[~is_test])

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(512, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, PASSES)
optimizer = horo.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

sampler = horo.elastic.Sampler(len(data), batch_size=16, seed=0)
loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, num_workers=1, persistent_workers=True)
state = horo.elastic.State(model=model, optimizer=optimizer, schedule=schedule, sampler=sampler, best=0.0)
if len(sys.argv) > 1:
    state.keep(sys.argv[1], every_s=2)
state.on_change(lambda change: print(f"rank {change.rank} of {change.size}: {change}", flush=True))


def accuracy_of(model):
    with torch.no_grad():
        return (model(test_images).argmax(1) == test_labels).float().mean().item()


@horo.elastic.run
def train(state):
    for number in state.passes(PASSES):
        batches = state.batches(loader)
        for x, y in rich.progress.track(batches, f"pass {number + 1:2}", disable=horo.rank() != 0):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        schedule.step()
        state.best = max(state.best, accuracy_of(model))


train(state)
if horo.rank() == 0:
    print(f"test accuracy {accuracy_of(model):.2%}, best {state.best:.2%}")
parameters = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print(f"sha256 of the parameters {hashlib.sha256(parameters).hexdigest()}")
