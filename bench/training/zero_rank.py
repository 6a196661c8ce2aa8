"""One rank of bench/zero, which starts it. The result:

{"quiet": [one per round], "bytes": of the parameters, "contestants": {name: {"seconds": [of a step, one per round],
 "held": bytes of a rank for each element, "sent": bytes of a step for each byte of the parameters, mean of the
 ranks, or None, "sha256": [one per rank]}}}
"""

import hashlib

import models
import torch
import torch.distributed as dist
import two_backends
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import horo.torch as hvd
from horo import zero

WARM_STEPS, MOST_STEPS, COUNTED_STEPS, RATE = 3, 100, 4, 1e-4


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

    def step(self, _):
        batch = self.batches[self.number % len(self.batches)]
        self.number += 1
        self.optimizer.zero_grad()
        self.model(*batch).backward()
        self.optimizer.step()

    def turn(self, count):
        """Seconds of the slowest rank for a step."""
        return two_backends.turn(self.step, count, self.groups["gloo"])

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
        return two_backends.digests(digest.hexdigest(), self.groups["gloo"])


def sent_bytes():
    counters = hvd.counters()
    return sum(one["bytes_sent"] for one in counters["collectives"])


def measure(task, groups):
    made, batches = two_backends.drawn(task["model"], task["tensors"])
    field = {name: Contestant(name, made, batches, groups) for name in task["contestants"]}
    for one in field.values():
        one.turn(WARM_STEPS)
    found = {name: {"held": one.held(), "sent": one.sent(), "seconds": []} for name, one in field.items()}
    count = two_backends.calls_of_turn(field.values(), task["turn_ms"] / 1000, MOST_STEPS)
    quiet, names = [], list(field)
    for number in range(task["rounds"]):
        quiet.append(two_backends.quiet_round(task["wait"], groups["gloo"]))
        at = number % len(names)
        for name in names[at:] + names[:at]:
            field[name].turn(1)
            found[name]["seconds"].append(field[name].turn(count))
    for name, one in field.items():
        found[name]["sha256"] = one.digests()
    size = sum(each.nbytes for each in made.make().parameters())
    return {"quiet": quiet, "bytes": size, "model": task["model"], "steps": count, "contestants": found}


two_backends.run(measure)
