"""One rank of bench/torch_distributed, started by backends.py with a task. The result: inputs of
backends.row_of(), one for each size or kind of step."""

import hashlib
import sys

import models
import torch
import torch.distributed as dist
import two_backends
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WARM_STEPS, WARM_CALLS, MOST_STEPS, MOST_CALLS = 4, 20, 100, 2000
LOSS_STEPS = 2  # before the losses are compared: later sums of different orders part them
STEP_TURNS = 5  # a turn of steps takes as long as so many of a collective
FLOAT_BYTES = 4


class Calls:
    """A collective of a size over one group; call(number) runs it."""

    def __init__(self, name, size, group):
        self.group, self.rank, self.ranks = group, dist.get_rank(), dist.get_world_size()
        count = max(self.ranks, size // FLOAT_BYTES) // self.ranks * self.ranks
        self.whole, self.other = torch.zeros(count), torch.zeros(count)
        self.part = torch.zeros(count // self.ranks)
        self.call = getattr(self, name)
        self.share = 0.5 if name == "send_recv" else 1.0

    def all_reduce(self, number):
        dist.all_reduce(self.whole, group=self.group)
        return self.whole, self.ranks * (self.ranks + 1) / 2

    def broadcast(self, number):
        root = number % self.ranks
        dist.broadcast(self.whole, root, group=self.group)
        return self.whole, root + 1

    def all_gather(self, number):
        dist.all_gather_into_tensor(self.whole, self.part, group=self.group)
        return self.whole, torch.arange(1.0, self.ranks + 1).repeat_interleave(len(self.part))

    def reduce_scatter(self, number):
        dist.reduce_scatter_tensor(self.part, self.whole, group=self.group)
        return self.part, self.ranks * (self.ranks + 1) / 2

    def all_to_all(self, number):
        dist.all_to_all_single(self.other, self.whole, group=self.group)
        return self.other, torch.arange(1.0, self.ranks + 1).repeat_interleave(len(self.part))

    def send_recv(self, number):
        peer = self.rank ^ 1
        if peer >= self.ranks:
            return self.other, 0
        first, then = (dist.send, dist.recv) if self.rank < peer else (dist.recv, dist.send)
        for step in (first, then):
            step(self.whole if step is dist.send else self.other, peer, group=self.group)
        return self.other, peer + 1

    def barrier(self, number):
        dist.barrier(group=self.group)
        return self.whole, self.rank + 1

    def checked(self, name):
        """The first call, with a result that is checked."""
        self.whole.fill_(self.rank + 1), self.part.fill_(self.rank + 1)
        found, expected = self.call(0)
        if not bool((found == expected).all()):
            sys.exit(f"{name} over {dist.get_backend(self.group)}: wrong values on rank {self.rank}")
        self.whole.zero_(), self.part.zero_()
        return self

    def turn(self, count):
        """Seconds of the slowest rank for a call."""
        return two_backends.turn(self.call, count, self.group) * self.share


class Steps:
    """A copy of the model that is trained over one group. All copies train on the same batches in the same order."""

    def __init__(self, kind, task, batches, group):
        torch.manual_seed(0)
        self.group, self.batches, self.number = group, batches, 0
        self.model = task.make()
        if kind == "ddp":
            self.model = DistributedDataParallel(self.model, process_group=group, broadcast_buffers=False)
        else:
            self.shard(dist.DeviceMesh.from_group(group, "cpu"))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=task.rate, momentum=0.9)

    def shard(self, mesh):
        """Each block is a unit, as is usual, and what remains is another."""
        for block in list(self.model.modules()):
            if isinstance(block, models.BLOCKS):
                fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)

    def step(self):
        batch = self.batches[self.number % len(self.batches)]
        self.number += 1
        self.optimizer.zero_grad()
        loss = self.model(*batch)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def turn(self, count):
        """Seconds of the slowest rank for a step."""
        return two_backends.turn(lambda _: self.step(), count, self.group)

    def loss(self):
        """Of one more step, the mean of all ranks."""
        value = torch.tensor([self.step()], dtype=torch.float64)
        dist.all_reduce(value, group=self.group)
        return value.item() / dist.get_world_size()

    def digests(self):
        """The sha256 of the parameters of each rank."""
        data = b"".join(each.detach().numpy().tobytes() for each in self.model.parameters())
        return two_backends.digests(hashlib.sha256(data).hexdigest(), self.group)


def play(field, task, turn_s, most):
    """{"quiet", "seconds"} of the rounds. field: {backend: what has turn()}. most: calls of a turn."""
    for one in field.values():
        one.turn(WARM_CALLS if most == MOST_CALLS else WARM_STEPS)
    count = two_backends.calls_of_turn(field.values(), turn_s, most)
    seconds, quiet, names = {name: [] for name in field}, [], list(field)
    for number in range(task["rounds"]):
        quiet.append(two_backends.quiet_round(task["wait_s"], field["gloo"].group))
        for name in names[number % 2 :] + names[: number % 2]:
            field[name].turn(1)
            seconds[name].append(field[name].turn(count))
    return {"quiet": quiet, "seconds": seconds}


def of_collective(task, name, size, groups):
    field = {backend: Calls(name, size, group).checked(name) for backend, group in groups.items()}
    return {"what": name, "bytes": size} | play(field, task, task["turn_s"], MOST_CALLS)


def of_steps(task, model, kind, groups):
    made, batches = two_backends.drawn(model, task["tensors"])
    field = {backend: Steps(kind, made, batches, group) for backend, group in groups.items()}
    found = {"what": f"{model} {kind}", "samples": made.samples * dist.get_world_size()}
    found["bytes"] = sum(each.nbytes for each in made.make().parameters())
    for one in field.values():
        one.turn(LOSS_STEPS)
    found["loss"] = {backend: one.loss() for backend, one in field.items()}
    found |= play(field, task, STEP_TURNS * task["turn_s"], MOST_STEPS)
    if kind == "ddp":
        found["sha256"] = {backend: one.digests() for backend, one in field.items()}
    return found


def measure(task, groups):
    """All figures, in the order of the table."""
    found = [of_steps(task, model, kind, groups) for model in task["models"] for kind in task["steps"]]
    for name in task["collectives"]:
        found += [of_collective(task, name, size, groups) for size in ([0] if name == "barrier" else task["sizes"])]
    return found


two_backends.run(measure)
