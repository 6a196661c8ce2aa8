"""What the ranks of horo and of torchft share: the model, the data, and the log of a rank.

A log is a file PID.log with a line per event: `mark NAME NS`, and `step NS COUNTS SIZE` at the end of each step, where
COUNTS says whether the rank has contributed to it, and SIZE is the number of ranks. NS is CLOCK_MONOTONIC.
"""

import os
import pathlib
import time

WIDTH, HIDDEN = 512, 1024  # 4 MiB of float32 parameters
STORED = 1 << 12  # rows in memory, which the samples share
SAMPLES = 1 << 16
SEED = 0


class Log:
    def __init__(self, folder):
        self._file = os.open(pathlib.Path(folder) / f"{os.getpid()}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def mark(self, name, at=None):
        os.write(self._file, f"mark {name} {at or time.monotonic_ns()}\n".encode())

    def step(self, counts, size):
        os.write(self._file, f"step {time.monotonic_ns()} {int(counts)} {size}\n".encode())


def started_ns():
    """The start of this process, to 10 ms."""
    fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Rows:
    """A data set that a DataLoader asks for a batch at a time."""

    def __init__(self):
        import torch

        generator = torch.Generator().manual_seed(SEED)
        self._x = torch.randn(STORED, WIDTH, generator=generator)
        self._y = self._x.roll(1, 1)

    def __len__(self):
        return SAMPLES

    def __getitems__(self, numbers):
        rows = [number % STORED for number in numbers]
        return self._x[rows], self._y[rows]


def same(batch):
    """A collate_fn for Rows."""
    return batch


def model():
    import torch

    torch.manual_seed(SEED)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, WIDTH))


def optimizer(model):
    import torch

    return torch.optim.AdamW(model.parameters(), lr=1e-3)
