"""One rank of bench/train_step, with all contestants. The argument is the JSON task of job.py. Rank 0 writes
result.json into the folder of the task:

    {"model", "ranks", "threads", "samples" of all ranks in a step, "tensors", "bytes", "warm_steps" before the rounds,
     "compared_steps", "steps" in a turn, "quiet": [one per round],
     "contestants": {name: {"turn_s": [one per round], "loss": [before, after], "sha256": [one per rank] at the end,
                            "moved", "from_ddp": distance of the parameters from the initial ones, and from ddp's,
                            after compared_steps}}}
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

WARM_STEPS = 8  # before the rounds
COMPARED_STEPS = 4  # the first of them, after which parameters are compared
BATCHES = 4
MOST_STEPS = 100


def slowest(seconds):
    """The maximum over ranks."""
    value = torch.tensor([seconds], dtype=torch.float64)
    gloo.all_reduce(value, gloo.ReduceOp.MAX)
    return value.item()


def gather(value):
    values = [None] * horo.size()
    gloo.all_gather_object(values, value)
    return values


def turn(one, steps):
    """Seconds of the slowest rank for `steps` steps."""
    gloo.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        one.step()
    return slowest(time.perf_counter() - begin)


def warm_up(field, turn_s):
    """The other warm-up steps, in which buckets and plans are made. Returns the number of steps of a turn."""
    longest = 0
    for one in field.values():
        turn(one, WARM_STEPS - COMPARED_STEPS - 2)
        longest = max(longest, turn(one, 2) / 2)
    return min(MOST_STEPS, max(2, round(turn_s / longest)))


def play_round(field, steps, number):
    """{contestant: seconds of its turn}. The first contestant changes with each round."""
    names = list(field)
    seconds = {}
    for i in range(len(names)):
        name = names[(number + i) % len(names)]
        turn(field[name], 1)
        seconds[name] = turn(field[name], steps)
    return seconds


def quiet_round(patience_s):
    """Waits for a quiet machine on rank 0, while the other ranks sleep; returns whether it is quiet. Runs a full
    garbage collection first: it takes as long as several steps, and would otherwise occur in one turn of hundreds."""
    gc.collect()
    gloo.barrier()
    found = torch.tensor([machine.wait_until_quiet(patience_s) if horo.rank() == 0 else False])
    gloo.broadcast(found, 0)
    return bool(found.item())


def compared(field, start):
    """Yields the distance of each contestant's parameters from the initial ones, and from ddp's. Called after a few
    steps, because rounding differences grow."""
    now = {name: one.parameters() for name, one in field.items()}
    for name, one in now.items():
        from_ddp = (one - now["ddp"]).norm().item() if "ddp" in now else None
        yield name, {"moved": (one - start).norm().item(), "from_ddp": from_ddp}


def measure(task, wanted):
    drawn = torch.Generator().manual_seed(contestants.SEED + 1 + horo.rank())
    batches = [task.draw(drawn) for _ in range(BATCHES)]
    names = filter(contestants.is_available, wanted["contestants"])
    field = {name: contestants.make(name, task, batches) for name in names}
    fresh = contestants.Contestant(task, batches)
    for one in field.values():
        turn(one, COMPARED_STEPS)
    found = dict(compared(field, fresh.parameters()))
    steps = warm_up(field, wanted["turn_ms"] / 1000)
    quiet, turns = [], []
    for number in range(wanted["rounds"]):
        quiet.append(quiet_round(wanted["patience"]))
        turns.append(play_round(field, steps, number))
    for name, one in field.items():
        loss = [sum(gather(loss)) / horo.size() for loss in (fresh.loss(), one.loss())]
        found[name] |= {"turn_s": [times[name] for times in turns], "loss": loss, "sha256": gather(one.sha256())}
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
