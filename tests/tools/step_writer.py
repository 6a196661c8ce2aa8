"""A rank for tests of horo scale: writes steps of known times to HORO_STEPS, as horo does, and needs no time for them.

With one rank a step takes 50 ms. With more of them each one waits 4 ms for the last rank and 2 ms for bytes.
"""

import argparse
import json
import os
import pathlib
import signal
import sys

BARS = "input forward backward after_backward optimizer checkpoint between".split()
BARS += "skew agreement transfer copies commit hand_over membership".split()
MS = 1_000_000
STEP_MS = 50
STEPS = 60


def bars_of(rank, size, divided):
    compute = (STEP_MS - 4) * MS // (size if divided else 1)
    bars = dict.fromkeys(BARS, 0) | {"input": 3 * MS, "forward": compute // 3, "between": MS}
    bars["backward"] = compute - compute // 3
    if size > 1:
        bars["transfer"] = 2 * MS
        bars["forward" if rank == size - 1 else "skew"] += 4 * MS
    return bars


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fail-at", type=int, default=0, help="fails with this number of ranks")
    parser.add_argument("--divided", action="store_true", help="the ranks divide one batch")
    parser.add_argument("--samples", type=int, default=64, help="0: not known")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--ends", action="store_true", help="does not wait for SIGTERM")
    options, _ = parser.parse_known_args()
    rank, size, path = int(os.environ["HORO_RANK"]), int(os.environ["HORO_SIZE"]), os.environ["HORO_STEPS"]
    assert os.environ["HORO_SCALE"] == "1"
    if size == options.fail_at:
        raise ValueError(f"no memory for {size} ranks")
    bars = bars_of(rank, size, options.divided)
    time = sum(bars.values())
    samples = options.samples // (size if options.divided else 1)
    parent = pathlib.Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(")")[1].split()
    start = int(parent[19]) * 10_000_000  # of all ranks of a run the same, and each run's after that of the last one
    late = {str(size - 1): bars["skew"]} if bars["skew"] else {}
    with open(path if rank == 0 else path.replace(".jsonl", f".rank{rank}.jsonl"), "w") as file:
        for step in range(1, options.steps + 1):
            line = {"rank": rank, "step": step, "stream": 1, "epoch": 0, "begin": start + step * time, "time": time}
            line |= {"bars": bars, "hidden_transfer": 0, "hidden_copies": 0, "gc": None, "cpu": time, "run_queue": 0}
            line |= {"switches": 0, "samples": samples or None, "work": samples or None, "late": late, "flags": 0}
            file.write(json.dumps(line) + "\n")
        file.write('{"rank":')  # as a rank that is ended while it writes
    print("cwd", os.getcwd())
    sys.stdout.flush()
    if not options.ends:
        signal.pause()


if __name__ == "__main__":
    main()
