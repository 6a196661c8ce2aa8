"""Trains a small convolutional net on scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels.

Needs: pip install torch scikit-learn rich. Run it with: python examples/digits_single.py
"""

import hashlib
import time

import rich.progress
import sklearn.datasets
import torch
from torch import nn

PASSES = 15
BATCH = 64

torch.manual_seed(0)
images, labels = sklearn.datasets.load_digits(return_X_y=True)
images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
labels = torch.tensor(labels)
is_test = torch.arange(len(labels)) % 5 == 0
test_images, test_labels = images[is_test], labels[is_test]
images, labels = images[~is_test], labels[~is_test]

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
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
quiet = False

begin = time.perf_counter()
for number in range(PASSES):
    batches = torch.randperm(len(labels)).split(BATCH)[:-1]  # without the last, short batch
    for batch in rich.progress.track(batches, f"pass {number + 1:2}", disable=quiet):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
seconds = time.perf_counter() - begin

if not quiet:
    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    print(f"test accuracy {accuracy:.2%}, {PASSES * len(batches) * BATCH / seconds:,.0f} samples/s")
parameters = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print(f"sha256 of the parameters {hashlib.sha256(parameters).hexdigest()}")
