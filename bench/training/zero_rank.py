"""One rank of bench/zero. The argument is its JSON task. Rank 0 writes result.json into the folder of the task:

{"quiet": [one per round], "bytes": of the parameters, "contestants": {name: {"seconds": [of a step, one per round],
 "held": bytes of a rank for each element, "sent": bytes of a step for each byte of the parameters, mean of the
 ranks, or None, "sha256": [one per rank]}}}
"""

import gc
import hashlib
import json
import os
import sys
import time

import machine
import models
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import horo.torch as hvd
from horo import zero

WARM_STEPS, MOST_STEPS, COUNTED_STEPS, BATCHES, RATE = 3, 100, 4, 4, 1e-4


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Contestant:
    """A copy of the model with its optimizer. All train on the same batches in the same order."""

    def __init__(self, name, task, batches, groups):
        torch.manual_seed(0)
        self.name, self.batches, self.number, self.groups = name, batches, 0, groups
        self.bare = self.model = task.make()
        self.elements = sum(each.numel() for each in self.bare.parameters())
        kind, _, backend = name.partition("-")
        self.group = groups.get(backend or "horo")
        {"plain": self._plain, "stage1": self._stage1, "zro": self._zro, "fsdp": self._fsdp, "stage2": self._stage2}[
            kind
        ]()

    def _adam(self):
        return torch.optim.Adam(self.bare.parameters(), lr=RATE)

    def _named(self):
        return [(f"{self.name}.{key}", each) for key, each in self.bare.named_parameters()]

    def _plain(self):
        self.optimizer = hvd.DistributedOptimizer(self._adam(), named_parameters=self._named())

    def _stage1(self):
        self.optimizer = zero.DistributedOptimizer(self._adam(), named_parameters=self._named())

    def _zro(self):
        self.model = DistributedDataParallel(self.bare, process_group=self.group, broadcast_buffers=False)
        self.optimizer = ZeroRedundancyOptimizer(
            self.bare.parameters(), torch.optim.Adam, process_group=self.group, lr=RATE
        )

    def _fsdp(self):
        if self.name == "fsdp-horo":
            zero.fully_shard(self.bare, models.BLOCKS, stage=3)
        else:
            mesh = dist.DeviceMesh.from_group(self.group, "cpu")
            for block in reversed([one for one in self.bare.modules() if isinstance(one, models.BLOCKS)]):
                fully_shard(block, mesh=mesh)
            fully_shard(self.bare, mesh=mesh)
        self.optimizer = self._adam()

    def _stage2(self):
        zero.fully_shard(self.bare, models.BLOCKS, stage=2)
        self.optimizer = self._adam()

    def step(self):
        batch = self.batches[self.number % len(self.batches)]
        self.number += 1
        self.optimizer.zero_grad()
        self.model(*batch).backward()
        self.optimizer.step()

    def turn(self, count):
        """Seconds of the slowest rank for a step."""
        dist.barrier(group=self.groups["gloo"])
        begin = time.perf_counter()
        for _ in range(count):
            self.step()
        value = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
        dist.all_reduce(value, dist.ReduceOp.MAX, group=self.groups["gloo"])
        return value.item() / count

    def held(self):
        """Bytes of parameters, gradients and state of this rank for each element of the model, after a step."""
        owners = {"zro": "optim", "stage1": "_zero"}
        state = getattr(self.optimizer, owners.get(self.name.partition("-")[0], ""), self.optimizer).state
        tensors = [*self.bare.parameters(), *(each.grad for each in self.bare.parameters() if each.grad is not None)]
        tensors += [each for entry in state.values() for each in entry.values() if torch.is_tensor(each)]
        return sum(local(each).nbytes for each in tensors) / self.elements

    def sent(self):
        """Bytes that a rank sends in a step for each byte of the parameters, the mean of the ranks."""
        if self.name.endswith("gloo"):
            return None
        before = sent_bytes()
        self.turn(COUNTED_STEPS)
        value = torch.tensor([float(sent_bytes() - before)], dtype=torch.float64)
        dist.all_reduce(value, group=self.groups["gloo"])
        return value.item() / dist.get_world_size() / COUNTED_STEPS / (4 * self.elements)

    def digests(self):
        """The sha256 of the whole parameters, by rank."""
        digest = hashlib.sha256()
        for each in self.bare.parameters():
            whole = each.full_tensor() if hasattr(each, "full_tensor") else each
            digest.update(whole.detach().numpy().tobytes())
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, digest.hexdigest(), group=self.groups["gloo"])
        return found


def sent_bytes():
    counters = hvd.counters()
    return sum(one["bytes_sent"] for one in counters["collectives"])


def quiet_round(wait_s, group):
    """Whether the machine is quiet. Runs a full garbage collection first."""
    gc.collect()
    dist.barrier(group=group)
    found = torch.tensor([machine.wait_until_quiet(wait_s) if dist.get_rank() == 0 else False])
    dist.broadcast(found, 0, group=group)
    return bool(found.item())


def measure(task, groups):
    made = models.task_of(task["model"], task["tensors"])
    drawn = torch.Generator().manual_seed(1 + dist.get_rank())
    batches = [made.draw(drawn) for _ in range(BATCHES)]
    field = {name: Contestant(name, made, batches, groups) for name in task["contestants"]}
    for one in field.values():
        one.turn(WARM_STEPS)
    found = {name: {"held": one.held(), "sent": one.sent(), "seconds": []} for name, one in field.items()}
    longest = max(one.turn(2) for one in field.values())
    count = min(MOST_STEPS, max(2, round(task["turn_ms"] / 1000 / longest)))
    quiet, names = [], list(field)
    for number in range(task["rounds"]):
        quiet.append(quiet_round(task["wait"], groups["gloo"]))
        at = number % len(names)
        for name in names[at:] + names[:at]:
            field[name].turn(1)
            found[name]["seconds"].append(field[name].turn(count))
    for name, one in field.items():
        found[name]["sha256"] = one.digests()
    size = sum(each.nbytes for each in made.make().parameters())
    return {"quiet": quiet, "bytes": size, "model": task["model"], "steps": count, "contestants": found}


def main():
    task = json.loads(sys.argv[1])
    rank, size = int(os.environ["HORO_RANK"]), int(os.environ["HORO_SIZE"])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    store = dist.FileStore(os.path.join(task["folder"], "store"), size)
    hvd.init()
    dist.init_process_group("horo", store=store, rank=rank, world_size=size)
    groups = {"gloo": dist.new_group(backend="gloo"), "horo": dist.group.WORLD}
    found = measure(task, groups)
    if rank == 0:
        with open(os.path.join(task["folder"], "result.json"), "w") as file:
            json.dump(found, file)
    dist.barrier(group=groups["gloo"])
    dist.destroy_process_group()
    hvd.shutdown()


main()
