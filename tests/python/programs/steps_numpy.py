"""Where the time of steps goes in a script of NumPy: waits, an input that the script names, and what is not known.
Arguments: on, unmarked or off, as the settings are."""

import json
import os
import sys
import threading
import time

import numpy as np

import horo.numpy as horo


def batches():
    for _ in range(12):
        time.sleep(0.003)
        yield np.ones((4, 5), np.float32), 0


mode = sys.argv[1]
horo.init()
rank = horo.rank()
for x, _ in horo.input(batches()):
    time.sleep(0.02 * (rank == 1))
    horo.allreduce(x, name="x")
    waiter = threading.Thread(target=lambda: time.sleep(0.001))  # its waits are not those of the training thread
    waiter.start()
    waiter.join()
    horo.step_end()
steps = horo.last_steps()
horo.barrier()
horo.shutdown()
if mode == "off":
    assert steps == [], steps
    assert not os.path.exists(os.environ["HORO_STEPS"])
    sys.exit()
assert len(steps) == 11, steps
for step in steps:
    bars = step["bars"]
    assert sum(ns or 0 for ns in bars.values()) == step["time"]
    unknown = {name for name, ns in bars.items() if ns is None}
    assert unknown == {"forward", "backward", "after_backward", "optimizer", "checkpoint"}, step
    assert bars["input"] >= 3e6 and bars["between"] >= (20e6 if rank == 1 else 1e6), step
    assert step["gc"] is None and (step["samples"], step["work"]) == (4, 20), step
skew = sorted(step["bars"]["skew"] for step in steps)[5]
assert (skew > 10e6) if rank == 0 else (skew < 10e6), (rank, skew)
if rank == 0:
    latest = [max(step["late"], key=step["late"].get, default=None) for step in steps[3:]]
    assert latest.count(1) >= 6, latest  # of 8: on a busy machine the rank itself may come last
path = os.environ["HORO_STEPS"]
with open(path if rank == 0 else path.replace(".jsonl", f".rank{rank}.jsonl")) as file:
    written = [json.loads(line) for line in file]
for step in steps:
    step["late"] = {str(late): ns for late, ns in step["late"].items()}
assert written == steps, (written[0], steps[0])
