"""The program of each rank: run_habits.py MODULE... MODULE.HABIT... runs these habits, each in a session of its own.

Prints for each habit a line "habit NAME JSON": null, or what was wrong on this rank.
"""

import faulthandler
import gc
import importlib
import json
import os
import random
import sys
import time
import traceback
import warnings

import torch
import torch._dynamo
from job import Oracle, Ranks, digest, values_of

import horo.torch as hvd

SETTINGS = {"HORO_STALL_LIMIT_MS": 30000, "HORO_STALL_WARNING_MS": 5000, "HORO_START_TIMEOUT_MS": 90000}
WATCHDOG_S = 60 * int(os.environ.get("HABITS_SLOWNESS", "1"))


def differences(values, expected, tolerance):
    """Where values is not as expected, as text."""
    if values.keys() != expected.keys():
        yield f"{sorted(values)}, expected {sorted(expected)}"
        return
    for name, value in values.items():
        wanted = expected[name]
        if value.shape != wanted.shape:
            yield f"{name}: shape {tuple(value.shape)}, expected {tuple(wanted.shape)}"
            continue
        off = (value.to(wanted.dtype) - wanted).abs().max().item() if wanted.numel() else 0.0
        scale = max(wanted.abs().max().item(), 1e-3) if wanted.numel() else 1.0
        if not off <= tolerance * scale:  # also false for a NaN
            yield f"{name}: off by {off:.3g} of {scale:.3g}: {value.flatten()[:4].tolist()}, expected " + str(
                wanted.flatten()[:4].tolist()
            )


def compare(job, habit, values):
    """Compares the bits of all ranks, and those of rank 0 with the oracle."""
    job.agree()
    digests = hvd.allgather_object(digest(values))
    assert len(set(digests)) == 1, f"ranks differ: {[text[:8] for text in digests]}: {values}"
    if job.rank == 0:
        oracle = Oracle(job.size)
        torch.manual_seed(1)
        wrong = list(differences(values, values_of(habit(oracle)), job.tolerance))
        assert not wrong, "; ".join(wrong)


def run(habit):
    """Returns what was wrong, or None."""
    hvd.init(settings=SETTINGS)
    random.seed(1)
    torch.manual_seed(1)
    try:
        job = Ranks(SETTINGS)
        compare(job, habit, values_of(habit(job)))
        return None
    except BaseException as error:
        if hvd.is_initialized():
            hvd.shutdown()  # ends the waits of the other ranks
        shown = "".join(traceback.format_exception(error, limit=-8))
        return f"{type(error).__name__}: {str(error)[:3000]}\n{shown[-3000:]}"
    finally:
        gc.collect()
        hvd.shutdown()


def chosen(names):
    """(module.habit, function) for each habit of the modules named, or for one habit of a module."""
    for name in names:
        module, _, one = name.partition(".")
        for habit, function in list(vars(importlib.import_module(module)).items()):
            if habit.startswith("habit_") and habit in (one or habit, f"habit_{one}"):
                yield f"{module}.{habit.removeprefix('habit_')}", function


def prepare():
    """Once per process."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    gc.freeze()  # collections after each habit skip the modules of torch


def main(*names):
    prepare()
    for name, habit in chosen(names):
        faulthandler.dump_traceback_later(WATCHDOG_S, exit=True)
        begin = time.monotonic()
        wrong = run(habit)
        faulthandler.cancel_dump_traceback_later()
        seconds = round(time.monotonic() - begin, 2)
        print(f"habit {name} {json.dumps({'wrong': wrong, 'seconds': seconds})}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
