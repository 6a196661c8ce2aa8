"""One rank of bench/train_step, with all contestants in it. Its argument is what job.py says; rank 0 writes
result.json into the folder:

    {"model", "ranks", "threads", "samples" of all ranks in a step, "tensors", "bytes", "warm_steps" before all,
     "compared_steps", "steps" in a turn, "quiet": [of each round],
     "contestants": {name: {"turn_s": [of each round], "loss": [before, after], "sha256": [of each rank] in the end,
                            "moved", "from_ddp": how far the parameters are from the first ones, and from ddp's, after
                            the same few steps}}}
"""

import gc
import json
import os
import sys
import time

import contestants
import machine
import models
import torch
import torch.distributed as gloo

import horo.torch as horo

WARM_STEPS, COMPARED_STEPS = 8, 4  # before all; of these, before parameters are compared
BATCHES = 4
MOST_STEPS = 100


def slowest(seconds):
    """The greatest of all ranks' values."""
    value = torch.tensor([seconds], dtype=torch.float64)
    gloo.all_reduce(value, gloo.ReduceOp.MAX)
    return value.item()


def of_all(value):
    values = [None] * horo.size()
    gloo.all_gather_object(values, value)
    return values


def turn(one, steps):
    """Seconds that the slowest rank takes for so many steps."""
    gloo.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        one.step()
    return slowest(time.perf_counter() - begin)


def warm_up(field, turn_s):
    """Buckets and plans come to be in the first steps, before this. Returns how many steps fill a turn."""
    longest = 0
    for one in field.values():
        turn(one, WARM_STEPS - COMPARED_STEPS - 2)
        longest = max(longest, turn(one, 2) / 2)
    return min(MOST_STEPS, max(2, round(turn_s / longest)))


def play_round(field, steps, number):
    """Seconds of each one's turn. Who begins changes from round to round."""
    names = list(field)
    seconds = {}
    for i in range(len(names)):
        name = names[(number + i) % len(names)]
        turn(field[name], 1)
        seconds[name] = turn(field[name], steps)
    return seconds


def quiet_round():
    """Whether rank 0 found a quiet machine; the others sleep meanwhile. A full run of the collector takes as long as
    several steps, comes once in hundreds of them, and may come in anybody's turn: here it comes before them all."""
    gc.collect()
    gloo.barrier()
    found = torch.tensor([machine.wait_until_quiet() if horo.rank() == 0 else False])
    gloo.broadcast(found, 0)
    return bool(found.item())


def compared(field, start):
    """How far each one's parameters are from the first ones, and from ddp's: later on, what began as another rounding
    may have grown."""
    now = {name: one.parameters() for name, one in field.items()}
    for name, one in now.items():
        from_ddp = (one - now["ddp"]).norm().item() if "ddp" in now else None
        yield name, {"moved": (one - start).norm().item(), "from_ddp": from_ddp}


def measure(task, wanted):
    drawn = torch.Generator().manual_seed(contestants.SEED + 1 + horo.rank())
    batches = [task.draw(drawn) for _ in range(BATCHES)]
    names = filter(contestants.is_there, wanted["contestants"])
    field = {name: contestants.make(name, task, batches) for name in names}
    fresh = contestants.Contestant(task, batches)
    for one in field.values():
        turn(one, COMPARED_STEPS)
    found = dict(compared(field, fresh.parameters()))
    steps = warm_up(field, wanted["turn_ms"] / 1000)
    quiet, turns = [], []
    for number in range(wanted["rounds"]):
        quiet.append(quiet_round())
        turns.append(play_round(field, steps, number))
    for name, one in field.items():
        loss = [sum(of_all(loss)) / horo.size() for loss in (fresh.loss(), one.loss())]
        found[name] |= {"turn_s": [times[name] for times in turns], "loss": loss, "sha256": of_all(one.sha256())}
    parameters = list(fresh.bare.parameters())
    return {
        "model": wanted["model"],
        "ranks": horo.size(),
        "threads": torch.get_num_threads(),
        "samples": task.samples * horo.size(),
        "tensors": len(parameters),
        "bytes": sum(parameter.nbytes for parameter in parameters),
        "warm_steps": WARM_STEPS,
        "compared_steps": COMPARED_STEPS,
        "steps": steps,
        "quiet": quiet,
        "contestants": found,
    }


def main():
    wanted = json.loads(sys.argv[1])
    rank, size = int(os.environ["HORO_RANK"]), int(os.environ["HORO_SIZE"])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    store = gloo.FileStore(os.path.join(wanted["folder"], "store"), size)
    gloo.init_process_group("gloo", store=store, rank=rank, world_size=size)
    horo.init()
    result = measure(models.task_of(wanted["model"], wanted["tensors"]), wanted)
    if rank == 0:
        with open(os.path.join(wanted["folder"], "result.json"), "w") as file:
            json.dump(result, file)
    gloo.barrier()
    horo.shutdown()
    gloo.destroy_process_group()


main()
