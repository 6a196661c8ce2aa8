"""A rank of one contestant of cost.py: rank_of_cost.py NAME FOLDER BATCH. It trains in turns: for each number that it
reads from FOLDER/RANK.go it makes so many steps, and writes the ns of all of them, and those of the processor, to
FOLDER/RANK.done."""

import sys
import time

import model as shared
import torch

import horo.torch as horo

NOT_TIMED = 2  # first steps of a turn, in which the other ranks begin it


def clocks():
    """ns of the clock, and of the processor in all threads of this process."""
    return time.perf_counter_ns(), time.process_time_ns()


class Turns:
    def __init__(self, folder):
        self._go = open(f"{folder}/{horo.rank()}.go")
        self._done = open(f"{folder}/{horo.rank()}.done", "w", buffering=1)
        self._left, self._begin = 0, None

    def before_step(self):
        """Returns whether there are more turns."""
        if self._left == 0:
            if self._begin:
                wall, processor = (now - begin for now, begin in zip(clocks(), self._begin))
                self._done.write(f"{wall} {processor}\n")
            self._steps = int(self._go.readline() or 0)
            self._left = self._steps + NOT_TIMED
        self._left -= 1
        if self._left + 1 == self._steps:
            self._begin = clocks()
        return self._steps > 0


def prepare():
    """(data, model, DistributedOptimizer)"""
    data, model = shared.Rows(), shared.model()
    optimizer = horo.DistributedOptimizer(shared.optimizer(model), named_parameters=model.named_parameters())
    horo.broadcast_parameters(model.state_dict(), root_rank=0)
    return data, model, optimizer


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def plain(turns, batch):
    """A script that only shrinks."""
    data, model, optimizer = prepare()
    sampler = torch.utils.data.distributed.DistributedSampler(data, horo.size(), horo.rank())
    loader = torch.utils.data.DataLoader(data, batch_size=batch, sampler=sampler, collate_fn=shared.same)
    number = 0
    while True:
        sampler.set_epoch(number)
        for x, y in loader:
            if not turns.before_step():
                return
            step(model, optimizer, x, y)
        number += 1


def growing(turns, batch):
    data, model, optimizer = prepare()
    sampler = horo.elastic.Sampler(len(data), batch_size=batch, seed=shared.SEED)
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, collate_fn=shared.same)
    state = horo.elastic.State(model=model, optimizer=optimizer, sampler=sampler)

    @horo.elastic.run
    def train(state):
        for _ in state.passes(1 << 20):
            for x, y in state.batches(loader):
                if not turns.before_step():
                    return
                step(model, optimizer, x, y)

    train(state)


if __name__ == "__main__":
    horo.init()
    {"plain": plain, "growing": growing}[sys.argv[1]](Turns(sys.argv[2]), int(sys.argv[3]))
