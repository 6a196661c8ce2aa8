"""Starts the ranks of bench/torch_distributed, and makes rows of their times."""

import json
import os
import statistics
import sys
import tempfile

import ranks
from training import job

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "backends_rank.py")
BACKENDS = ("gloo", "horo")
STEPS = ("ddp", "fsdp2")
MODELS = job.MODELS
COLLECTIVES = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "barrier")
ROUND_LIMIT_S, START_LIMIT_S = 20, 120
MOST_DIFFERENCE = 0.01  # between the losses of both backends
COLUMNS = {  # title: key of the row, width, digits after the point (None: text)
    "what": ("what", 14, None),
    "ranks": ("ranks", 5, 0),
    "bytes": ("bytes", 9, 0),
    "gloo us": ("gloo_us", 11, 1),
    "horo us": ("horo_us", 11, 1),
    "gloo/horo": ("ratio", 9, 2),
    "least": ("least", 7, 2),
    "most": ("most", 7, 2),
}


def run(options, size):
    """{"rows", "wrong"} of this number of ranks. Raises ranks.RanksFailed if a rank fails or does not end in time."""
    with tempfile.TemporaryDirectory(prefix="horo_torch_bench_") as folder:
        task = {
            "models": options.models if options.steps else [],
            "steps": options.steps,
            "collectives": options.collectives,
            "sizes": options.sizes,
            "rounds": options.rounds,
            "turn_s": options.turn_ms / 1000,
            "wait_s": options.wait,
            "tensors": options.tensors,
            "folder": folder,
        }
        environment = {"HORO_TRANSPORT": options.transport, "OMP_NUM_THREADS": str(job.threads(size))}
        figures = len(task["models"]) * len(options.steps) + len(options.collectives) * len(options.sizes)
        limit_s = START_LIMIT_S + (ROUND_LIMIT_S + options.wait) * options.rounds * figures
        command = [sys.executable, WORKER, json.dumps(task)]
        ranks.check_ranks(command, size, limit_s, environment | job.KEEP_FREED_MEMORY)
        with open(os.path.join(folder, "result.json")) as file:
            measured = json.load(file)
    rows = [row_of(one | {"ranks": size}) for one in measured]
    return {"rows": rows, "wrong": [text for one in measured for text in check(one, size)]}


def row_of(measured):
    """measured: "what", "bytes", "ranks", "quiet", "seconds": {backend: [seconds of an operation, one per round]}; of
    steps also "samples"."""
    seconds = measured["seconds"]
    ratios = [gloo / horo for gloo, horo in zip(seconds["gloo"], seconds["horo"])]
    row = {key: measured[key] for key in ("what", "ranks", "bytes")}
    row |= {f"{name}_us": statistics.median(seconds[name]) * 1e6 for name in BACKENDS}
    row |= {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
    if "samples" in measured:
        row |= {f"{name}_samples_per_s": measured["samples"] * 1e6 / row[f"{name}_us"] for name in BACKENDS}
    row |= {"rounds": len(ratios), "quiet": sum(measured["quiet"])}
    return row | {f"{name}_round_us": [one * 1e6 for one in seconds[name]] for name in BACKENDS}


def check(measured, size):
    """Yields a sentence for each failed check of steps. Ranks check collectives themselves."""
    for name, digests in measured.get("sha256", {}).items():
        if len(set(digests)) != 1:
            yield f"{measured['what']} over {name}, {size} ranks: ranks end with different parameters"
    if "loss" in measured:
        gloo, horo = (measured["loss"][name] for name in BACKENDS)
        if not abs(gloo - horo) <= MOST_DIFFERENCE * abs(gloo):
            yield f"{measured['what']}, {size} ranks: the loss is {horo:.4g} over horo, and {gloo:.4g} over Gloo"


def header():
    return "  ".join(f"{name:{'<' if digits is None else '>'}{width}}" for name, (_, width, digits) in COLUMNS.items())


def _cell(value, width, digits):
    return f"{value:{width}}" if digits is None else f"{value:{width}.{digits}f}"


def table(rows):
    return "\n".join("  ".join(_cell(row[key], *form) for key, *form in COLUMNS.values()) for row in rows)
