"""tools/soak death: ranks with shared memory reduce continuously; one of them, which has touched --mib of memory, is
killed. The other ranks get an error that names it long before the kernel has freed its memory: the 99th percentile of
the time from the kill to the error, over all of them, is at most --limit-ms. Run it on an idle machine.
"""

import pathlib
import random
import statistics
import time

from soaks.kill import Job

WORKER = str(pathlib.Path(__file__).resolve().parent / "death_worker.py")
WAIT_S = 60


def add_arguments(parser):
    parser.add_argument("--count", type=int, default=100, help="deaths (default: 100)")
    parser.add_argument("--ranks", default="2,3,4", help="numbers of ranks (default: 2,3,4)")
    parser.add_argument("--mib", type=int, default=4096, help="memory that the killed rank has touched (default: 4096)")
    parser.add_argument("--kib", default="4,1024", help="sizes of the all_reduces (default: 4,1024)")
    parser.add_argument("--limit-ms", type=float, default=10, help="for the 99th percentile (default: 10)")
    parser.set_defaults(deadline_ms=30_000, start_timeout_ms=60_000)


def run(number, options):
    """Kills one rank; returns the milliseconds until each survivor's error, and until the process was reaped."""
    chance = random.Random(f"{options.seed}/{number}")
    size, kib = (int(chance.choice(choices.split(","))) for choices in (options.ranks, options.kib))
    victim = chance.randrange(size)
    job = Job([WORKER, str(victim), str(options.mib), str(kib)], size, options, {"HORO_TRANSPORT": "shm"})
    try:
        _await(job, range(size), "ready")
        time.sleep(chance.uniform(0, 0.05))
        struck = time.monotonic()
        job.processes[victim].kill()
        job.processes[victim].wait()
        reaped = time.monotonic()
        others = [rank for rank in range(size) if rank != victim]
        _await(job, others, "lost")
        lost = [job.said(rank)[0]["lost"] for rank in others]
        heard = [(one["at"] - struck) * 1000 for one in lost]
        wrong = [f"death {number}, rank {victim}: {one['text']}" for one in lost if one["origin"] != victim]
        reaped_ms = (reaped - struck) * 1000
        return {"size": size, "kib": kib, "heard_ms": heard, "reaped_ms": reaped_ms, "wrong": wrong}
    finally:
        job.end()


def _await(job, among, event):
    end = time.monotonic() + WAIT_S
    while not all(event in job.said(rank)[0] for rank in among):
        if time.monotonic() > end or any(job.processes[rank].poll() is not None for rank in among):
            texts = "\n".join(f"rank {rank}: {job.said(rank)[1]}" for rank in among)
            raise RuntimeError(f"not all ranks report '{event}':\n{texts}")
        time.sleep(0.02)


def run_all(options):
    rows = []
    for number in range(options.count):
        rows.append(run(number, options))
        if not options.json:
            heard = ", ".join(f"{ms:.1f}" for ms in rows[-1]["heard_ms"])
            print(
                f"{number:4} {rows[-1]['size']} ranks, {rows[-1]['kib']:5} KiB: {heard} ms; reaped after "
                f"{rows[-1]['reaped_ms']:.0f} ms",
                flush=True,
            )
    wrong = [text for row in rows for text in row.pop("wrong")]
    heard = quantiles([ms for row in rows for ms in row["heard_ms"]])
    if heard["p99"] > options.limit_ms:
        wrong.append(f"the 99th percentile is {heard['p99']:.1f} ms; the limit is {options.limit_ms:g} ms")
    reaped = quantiles([row["reaped_ms"] for row in rows])
    summary = {"deaths": len(rows), "mib": options.mib, "heard_ms": heard, "reaped_ms": reaped}
    return summary | {"rows": rows, "wrong": wrong}


def quantiles(values):
    """Count, median, 99th percentile (a measured value) and maximum."""
    ordered = sorted(values)
    at = max(0, -(-99 * len(ordered) // 100) - 1)
    return {"count": len(ordered), "p50": statistics.median(ordered), "p99": ordered[at], "max": ordered[-1]}


def show(summary):
    print(f"\n{'ms from the kill':<28}{'count':>7}{'p50':>9}{'p99':>9}{'max':>9}")
    for what, row in (("to a survivor's error", summary["heard_ms"]), ("to the process's end", summary["reaped_ms"])):
        print(f"{what:<28}{row['count']:>7}{row['p50']:>9.1f}{row['p99']:>9.1f}{row['max']:>9.1f}")
