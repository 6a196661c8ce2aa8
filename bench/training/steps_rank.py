"""A rank of bench/steps: WIDTH LAYERS BATCH. A line of its input is a turn: the value of HORO_ACCOUNTING, the steps
before the measurement, and those of it."""

import json
import sys
import time

import torch

import horo.torch as horo
from horo import _default
from horo._marks import BACKWARD, CHECKPOINT, INPUT, OPTIMIZER, marks

ALONE = 2_000  # steps that only mark


def marks_alone():
    """Nanoseconds of CPU of the marks and the end of a step."""
    session = _default.session()
    begin = time.thread_time_ns()
    for _ in range(ALONE):
        for kind in (INPUT, INPUT, BACKWARD, OPTIMIZER, CHECKPOINT):
            marks.begin(kind)
            marks.end(kind)
        marks.end_step(session)
    return (time.thread_time_ns() - begin) / ALONE


def work(width, layers, batch):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)])
    data = torch.utils.data.TensorDataset(torch.randn(64, batch, width))
    loader = torch.utils.data.DataLoader(data, batch_size=None)

    def batches():
        while True:
            yield from loader

    source = batches()

    def train(optimizer, steps):
        for _ in range(steps):
            (x,) = next(source)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        horo.barrier()

    for line in sys.stdin:
        setting, warm_up, steps = line.split()
        steps = int(steps)
        horo.init(settings={"HORO_ACCOUNTING": setting})
        optimizer = horo.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-3))
        train(optimizer, int(warm_up))
        sent = horo.counters()["control"]["messages"]
        cpu, begin = time.process_time_ns(), time.monotonic_ns()
        train(optimizer, steps)
        found = {"wall_ns": (time.monotonic_ns() - begin) / steps, "cpu_ns": (time.process_time_ns() - cpu) / steps}
        found["messages"] = (horo.counters()["control"]["messages"] - sent) / steps
        found["alone_ns"] = marks_alone()
        horo.shutdown()
        print(json.dumps(found), flush=True)


work(*map(int, sys.argv[1:]))
