"""The life and the turns of the ranks of bench/torch_distributed and bench/zero: each has a group over Gloo and one
over the backend "horo". The argument of a rank is its JSON task; rank 0 writes result.json into its folder."""

import gc
import json
import os
import sys
import time

import machine
import models
import torch
import torch.distributed as dist

import horo

BATCHES = 4


def run(measure):
    """The life of a rank. measure(task, {"gloo": group, "horo": group}) returns the result."""
    task = json.loads(sys.argv[1])
    rank, size = int(os.environ["HORO_RANK"]), int(os.environ["HORO_SIZE"])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    store = dist.FileStore(os.path.join(task["folder"], "store"), size)
    horo.init()
    dist.init_process_group("horo", store=store, rank=rank, world_size=size)
    groups = {"gloo": dist.new_group(backend="gloo"), "horo": dist.group.WORLD}
    found = measure(task, groups)
    if rank == 0:
        with open(os.path.join(task["folder"], "result.json"), "w") as file:
            json.dump(found, file)
    dist.barrier(group=groups["gloo"])
    dist.destroy_process_group()
    horo.shutdown()


def drawn(model, tensors):
    """The models.task_of() of a model, and the batches of this rank."""
    made = models.task_of(model, tensors)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    return made, [made.draw(generator) for _ in range(BATCHES)]


def turn(call, count, group):
    """Seconds of the slowest rank for one of so many calls."""
    dist.barrier(group=group)
    begin = time.perf_counter()
    for number in range(count):
        call(number)
    value = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
    dist.all_reduce(value, dist.ReduceOp.MAX, group=group)
    return value.item() / count


def calls_of_turn(field, turn_s, most):
    """The number of calls of a turn that takes the slowest of these contestants so many seconds."""
    return min(most, max(2, round(turn_s / max(one.turn(2) for one in field))))


def quiet_round(wait_s, group):
    """Whether the machine is quiet. Runs a full garbage collection first, which would otherwise occur in one turn of
    hundreds."""
    gc.collect()
    dist.barrier(group=group)
    found = torch.tensor([machine.wait_until_quiet(wait_s) if dist.get_rank() == 0 else False])
    dist.broadcast(found, 0, group=group)
    return bool(found.item())


def digests(digest, group):
    """This digest of each rank, by rank."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, digest, group=group)
    return found
