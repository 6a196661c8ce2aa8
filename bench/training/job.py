"""Starts the ranks of bench/train_step for one model and one number of ranks, and returns their measurements."""

import json
import os
import sys
import tempfile

import ranks

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
MODELS = ("tensors1000", "resnet18", "gpt2")
CONTESTANTS = ("none", "ddp", "ddp-view", "ddp-no-sync", "horo", "horo-view")
ROUND_LIMIT_S, START_LIMIT_S = 120, 300  # of a round that waits for a quiet machine
# Otherwise the heap returns memory in each step and requests it again, if the gradients of a contestant lie at its end.
KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_MMAP_MAX_": "0"}


def threads(size):
    """Threads per rank, so that no core has two, if there are as many cores as ranks."""
    return max(1, len(os.sched_getaffinity(0)) // size)


def run(options, model, size):
    """The result of worker.py. Raises ranks.RanksFailed if a rank fails or does not end in time."""
    with tempfile.TemporaryDirectory(prefix="horo_train_step_") as folder:
        task = {
            "model": model,
            "rounds": options.rounds,
            "turn_ms": options.turn_ms,
            "patience": options.patience,
            "tensors": options.tensors,
            "contestants": options.contestants,
            "folder": folder,
        }
        environment = {"HORO_TRANSPORT": options.transport, "OMP_NUM_THREADS": str(threads(size))}
        command = [sys.executable, WORKER, json.dumps(task)]
        limit_s = START_LIMIT_S + ROUND_LIMIT_S * options.rounds
        ranks.check_ranks(command, size, limit_s, environment | KEEP_FREED_MEMORY)
        with open(os.path.join(folder, "result.json")) as file:
            return json.load(file)
