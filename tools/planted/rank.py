"""A rank with planted delays: trains in windows of steps, as the input of rank 0 says.

    horo run -n 4 python rank.py FOLDER COMPUTE_MS [--ddp]

A line of the input is the name of a window and a number of steps. After a window FOLDER/rank<id>.json has the records
of its steps and the delays in them, in nanoseconds, as this rank has measured them; then rank 0 prints "done". id is
the rank at the start. Compute is sleep, so that the ranks need no core; in the window "core" rank 1 computes.
"""

import gc
import io
import json
import os
import pathlib
import random
import signal
import sys
import time

import torch

import horo.torch as horo

COMPUTE_S = float(sys.argv[2]) / 1000  # of forward, and of backward
LATE_S = 0.008
ROWS = 16  # of a usual batch
MOST_ROWS = 64  # of a batch of random length
CHECKPOINT_S, CHECKPOINT_STEPS = 0.06, 20
SOMETIMES = 0.1  # of the steps, at random

# Windows: by rank (None: all of them), the place of a delay of LATE_S in each step.
PLACES = {
    "nothing": (None, None),
    "forward": (2, "forward"),
    "backward": (1, "backward"),
    "loader": (1, "input"),
    "loaders": (None, "input"),
    "optimizer": (3, "optimizer"),
    "clipping": (0, "after_backward"),
    "logging": (3, "between"),
}


class Planted:
    """The delays of the present window and step."""

    def __init__(self, me):
        self.me, self.name, self.step, self.spent = me, "nothing", 0, {}
        self.random = random.Random(me)
        self.garbage = None

    def begin_window(self, name):
        self.name, self.garbage = name, None
        if name == "garbage" and self.me == 1:
            self.garbage = heap_of(0.03)
        if name == "core" and self.me == 1:
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    def end_window(self):
        self.garbage = None
        gc.collect()
        if self.name == "core" and self.me == 1:
            os.sched_setaffinity(0, CORES)

    def begin_step(self, step):
        self.step = step
        self.varies = self.name == "data" or (self.name == "data of one" and self.me == 3)
        self.rows = self.random.randrange(1, MOST_ROWS) if self.varies else ROWS

    def saves(self):
        return self.name == "checkpoint" and self.me == 0 and self.step % CHECKPOINT_STEPS == 0

    def sleep(self, place, seconds):
        begin = time.monotonic_ns()
        time.sleep(seconds)
        self.spent[place] = self.spent.get(place, 0) + time.monotonic_ns() - begin

    def at(self, place):
        rank, where = PLACES.get(self.name, (None, None))
        if where == place and rank in (None, self.me):
            self.sleep(place, LATE_S)
        if place == "forward" and self.varies:
            self.sleep(place, 2 * LATE_S * self.rows / MOST_ROWS)
        if place == "forward" and self.garbage is not None and self.random.random() < SOMETIMES:
            begin = time.monotonic_ns()
            gc.collect()
            self.spent["gc"] = time.monotonic_ns() - begin
        if place == "checkpoint":
            self.sleep(place, CHECKPOINT_S)
        if place == "backward" and self.name == "death" and self.me == 2 and self.step == DEATH:
            time.sleep(5 * LATE_S)  # the others wait for this rank when it dies
            os.kill(os.getpid(), signal.SIGKILL)

    def compute(self, place):
        if self.name == "core" and self.me == 1 and place == "forward":
            end = time.thread_time() + COMPUTE_S
            while time.thread_time() < end:
                pass
        else:
            time.sleep(COMPUTE_S)


DEATH = 40  # the step of the window "death" in which rank 2 is killed
CORES = os.sched_getaffinity(0)


def heap_of(seconds):
    """Objects whose collection takes so long."""
    heap = []
    while True:
        begin = time.monotonic()
        gc.collect()
        if time.monotonic() - begin >= seconds:
            return heap
        heap += [[i] for i in range(20_000)]


class Slow(torch.autograd.Function):
    """The identity, whose backward takes a while."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        planted.compute("backward")
        planted.at("backward")
        return gradient


class SGD(torch.optim.SGD):
    def step(self, closure=None):
        planted.at("optimizer")
        return super().step(closure)


class Batches(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        planted.at("input")
        return torch.ones(planted.rows, 8)


class File(io.BytesIO):
    """What torch.save writes to; its first write is slow."""

    is_first = True

    def write(self, data):
        if self.is_first:
            self.is_first = False
            planted.at("checkpoint")
        return super().write(data)


def one_step(model, optimizer, batches):
    planted.at("between")
    x = next(batches)
    optimizer.zero_grad()
    planted.compute("forward")
    planted.at("forward")
    Slow.apply(model(x)).square().mean().backward()
    record, spent = horo.last_step(), dict(planted.spent)
    planted.spent = {}
    planted.at("after_backward")
    optimizer.step()
    if planted.saves():
        torch.save(model.state_dict(), File())
    return {"record": record, "planted": spent}


def window(name, steps, train):
    planted.begin_window(name)
    found = []
    for step in range(steps):
        planted.begin_step(step)
        found.append(train())
    planted.end_window()
    path = FOLDER / f"rank{planted.me}.json"
    path.write_text(json.dumps(found))


def main():
    torch.set_num_threads(1)
    gc.freeze()  # the modules, whose collection takes long
    gc.disable()
    if "--ddp" in sys.argv:
        torch.distributed.init_process_group("horo")
        rank = torch.distributed.get_rank()
    else:
        horo.init()
        rank = horo.rank()
    planted.me = rank
    planted.random.seed(rank)
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 4)
    if "--ddp" in sys.argv:
        model = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = SGD(model.parameters(), lr=0.001)
    else:
        optimizer = horo.DistributedOptimizer(SGD(model.parameters(), lr=0.001), model.named_parameters())
    batches = iter(torch.utils.data.DataLoader(Batches(), batch_size=None))
    (FOLDER / f"pid{rank}").write_text(str(os.getpid()))
    while True:
        order = [sys.stdin.readline() if horo.rank() == 0 else ""]
        order = horo.broadcast_object(order, root_rank=0)[0]
        if not order:
            break
        name, steps = json.loads(order)
        window(name, steps, lambda: one_step(model, optimizer, batches))
        horo.barrier()
        if horo.rank() == 0:
            print("done", flush=True)


FOLDER = pathlib.Path(sys.argv[1])
planted = Planted(0)
main()
