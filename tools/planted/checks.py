"""The checks of tools/step_checks. Each returns a line of figures and a list of what is wrong."""

import contextlib
import dataclasses
import json
import os
import re
import statistics
import subprocess
import sys

from planted.job import ROOT, BusyCore, PlantedJob, Stops
from planted.verdict import Expected, is_near, mistakes

MOST_BUSY = 0.02  # of a window, in which a rank waits for a core; else it is made again
TRIES = 3
ALWAYS = "in nearly all steps"

# Window: what `horo status` must say of it.
VERDICTS = {
    "nothing": Expected(),
    "forward": Expected(2, ALWAYS, "its forward takes", "forward"),
    "backward": Expected(1, ALWAYS, "its backward takes", "backward"),
    "loader": Expected(1, ALWAYS, "its input takes", "input"),
    "loaders": Expected(),
    "optimizer": Expected(3, ALWAYS, "its optimizer takes", "optimizer"),
    "clipping": Expected(0, ALWAYS, "its after backward takes", "after_backward"),
    "logging": Expected(3, ALWAYS, "its between takes", "between"),
    "checkpoint": Expected(0, "in each step number 20", "its checkpoint takes", "checkpoint"),
    "garbage": Expected(1, "at random", "collected garbage", "gc"),
    "core": Expected(1, ALWAYS, "waited for a core"),
    "stops": Expected(1, "at random", "it was stopped"),
    "data": Expected(None, why="steps take as long as their data are"),
    "data of one": Expected(3, "in steps with much data", "its forward takes"),
}


def sums(window):
    """Bars add up to the step, and steps follow one another."""
    for rank in window.by_id:
        records = window.records(rank)
        for one, after in zip(records, records[1:]):
            if one["begin"] + one["time"] != after["begin"] or one["step"] + 1 != after["step"]:
                return [f"rank {rank}: a gap between {one} and {after}"]
        for one in records:
            if (
                sum(ns or 0 for ns in one["bars"].values()) != one["time"]
                or min((ns for ns in one["bars"].values() if ns is not None), default=0) < 0
            ):
                return [f"rank {rank}: the bars do not add up: {one}"]
    return []


def skew_of_others(window, expected):
    """A rank that waits for one that is always late does so for as long as its delay is."""
    if expected.when != ALWAYS or not expected.place:
        return []
    planted = window.planted(expected.rank, expected.place)
    found = {rank: window.bar(rank, "skew") for rank in window.by_id if rank != expected.rank}
    return [f"rank {rank} has {skew:.2f} ms of skew, planted {planted:.2f} ms" for rank, skew in found.items()
            if not is_near(skew, planted)]  # fmt: skip


def input_of_all(window):
    figures = {rank: (window.bar(rank, "input"), window.planted(rank, "input")) for rank in window.by_id}
    return [f"rank {rank}: input {found:.2f} ms, planted {planted:.2f} ms"
            for rank, (found, planted) in figures.items() if not is_near(found, planted)]  # fmt: skip


def wrong_in(window, name, with_sizes):
    expected = VERDICTS[name] if with_sizes else dataclasses.replace(VERDICTS[name], place="")
    wrong = sums(window) + mistakes(window, expected) + skew_of_others(window, expected)
    return wrong + (input_of_all(window) if name == "loaders" and with_sizes else [])


def verdict(job, name, most_busy, is_loaded):
    """A window in which ranks waited for a core is made again, at most TRIES times in all. is_loaded: such a window
    counts if rank, time and cause are right."""
    exempt = (1,) if name in ("core", "garbage", "stops") else ()
    for _ in range(TRIES):
        around = {"core": BusyCore, "stops": lambda: Stops(job.pid(1))}.get(name, contextlib.nullcontext)
        with around():
            window = job.window(name)
        busy, wrong = window.busy(exempt), wrong_in(window, name, not is_loaded)
        if busy <= most_busy or (is_loaded and not wrong):
            break
    else:
        wrong.append(f"the machine was too busy {TRIES} times")
    expected = VERDICTS[name]
    planted = f"; planted {window.planted(expected.rank, expected.place):.2f} ms" if expected.place else ""
    return f"{window.late or 'nobody is late'}{planted} (waited for a core: {100 * busy:.1f} %)", wrong


def death(folder, compute_ms):
    """kill -9 of one of four while the others wait for it: their membership is the interval that horo run prints."""
    with PlantedJob(folder, compute_ms, options=["--min-np", "2"]) as job:
        window = job.window("death", 80)
        story = "\n".join(event["text"] for event in job.status()["story"])
    told = re.search(r"epoch 1 runs on all 3 members after ([\d.]+) (ms|s)", story)
    if not told:
        return "", [f"no interval in the story:\n{story}"]
    interval = float(told[1]) * (1000 if told[2] == "s" else 1)
    found = {
        rank: sum(record["bars"]["membership"] or 0 for record in window.records(rank)) / 1e6 for rank in window.by_id
    }
    wrong = sums(window)
    wrong += [f"rank {rank}: membership {ms:.1f} ms, told {interval:.1f} ms" for rank, ms in found.items()
              if abs(ms - interval) > 5]  # fmt: skip
    if sorted(found) != [0, 1, 3]:
        wrong.append(f"windows of ranks {sorted(found)}")
    epochs = {record["epoch"] for rank in window.by_id for record in window.records(rank)}
    if epochs != {0, 1}:
        wrong.append(f"epochs {epochs}")
    figures = ", ".join(f"{ms:.1f}" for ms in found.values())
    return f"epoch 1 after {interval:.1f} ms; membership {figures} ms", wrong


def hidden_shares(steps, streams, rounds):
    """By optimizer, the first ones: the hidden share of the transfer of its last steps, the median."""
    records = [json.loads(line) for line in steps.read_text().splitlines() if line.endswith("}")]
    shares = []
    for stream in sorted({record["stream"] for record in records if record["stream"]})[:streams]:
        own = [record for record in records if record["stream"] == stream][-rounds:]
        hidden = [(record["hidden_transfer"], record["bars"]["transfer"]) for record in own]
        shares.append(statistics.median(inside / (inside + outside) for inside, outside in hidden))
    return shares


def overlap(folder, backward_ms, rounds=21):
    """The hidden share of the transfer is that which bench/overlap measures from outside."""
    results, steps = folder / f"overlap{backward_ms}.json", folder / f"steps{backward_ms}.jsonl"
    command = [sys.executable, ROOT / "tools/two_hosts", "--line", "rate 1gbit", "-n", "1", sys.executable]
    command += [ROOT / "bench/overlap", "--backward-ms", str(backward_ms), "--rounds", str(rounds), "--json", results]
    env = os.environ | {"HORO_STEPS": str(steps)}
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        return "", [done.stdout[-2000:] + done.stderr[-2000:]]
    told = json.loads(results.read_text())["rows"][0]["contestants"]
    outside = [told[name]["hidden"] for name in ("fifo-barrier", "priority-barrier")]
    inside = hidden_shares(steps, len(outside), rounds)
    wrong = [f"hidden {100 * mine:.1f} %, bench/overlap {100 * its:.1f} %" for mine, its in zip(inside, outside)
             if abs(mine - its) > 0.03]  # fmt: skip
    mine, its = ([f"{100 * share:.1f}" for share in shares] for shares in (inside, outside))
    return f"hidden {', '.join(mine)} %, bench/overlap {', '.join(its)} %", wrong
