"""tools/soak cycles: processes repeatedly join and leave jobs, in good order or because the other rank was killed.
After the last job they hold no more descriptors, threads, segments and memory than after the first jobs.
"""

import json
import pathlib
import sys

import ranks

FOLDER = pathlib.Path(__file__).resolve().parent
WORKER = str(FOLDER / "cycles_worker.py")
RSS_BYTES_PER_JOB = 1 << 10
RSS_SLACK_BYTES = 3 << 20  # memory that an allocator keeps, independent of the number of jobs


def add_arguments(parser):
    parser.add_argument("--cycles", type=int, default=500, help="jobs that end in good order (default: 500)")
    parser.add_argument("--failures", type=int, default=200, help="jobs in which a rank is killed (default: 200)")


def measure(what, count, size):
    """One row per process: its resources after a fifth of the jobs, and after all."""
    env = {"PYTHONPATH": ranks.os.pathsep.join([str(FOLDER.parent), ranks.os.environ.get("PYTHONPATH", "")])}
    ended = ranks.check_ranks([sys.executable, WORKER, what, str(count)], size, deadline_s=120 + count, env=env)
    for rank in ended:
        first, last = [json.loads(line) for line in rank.output.splitlines() if line.startswith("{")]
        yield {"what": what, "rank": rank.rank, "jobs": count, "first": first, "last": last}


def judge(row):
    first, last, jobs = row["first"], row["last"], row["jobs"]
    where = f"{row['what']}, rank {row['rank']}"
    for name in ("descriptors", "threads", "segments"):
        if last[name] > first[name]:
            yield f"{where}: {name} grew from {first[name]} to {last[name]} in {jobs} jobs"
    grown, allowed = last["rss_bytes"] - first["rss_bytes"], RSS_SLACK_BYTES + RSS_BYTES_PER_JOB * jobs
    if grown > allowed:
        yield f"{where}: memory grew by {grown} bytes in {jobs} jobs; the limit is {allowed}"


def run_all(options):
    rows = [*measure("cycles", options.cycles, 2), *measure("failures", options.failures, 1)]
    return {"rows": rows, "wrong": [text for row in rows for text in judge(row)]}


def show(summary):
    print(f"{'jobs':<16}{'rank':>5}{'descriptors':>14}{'threads':>10}{'segments':>10}{'memory':>20}")
    for row in summary["rows"]:
        first, last = row["first"], row["last"]
        pairs = [f"{first[name]} -> {last[name]}" for name in ("descriptors", "threads", "segments")]
        memory = f"{first['rss_bytes'] / 2**20:.1f} -> {last['rss_bytes'] / 2**20:.1f} MiB"
        jobs = f"{row['jobs']} {row['what']}"
        print(f"{jobs:<16}{row['rank']:>5}{pairs[0]:>14}{pairs[1]:>10}{pairs[2]:>10}{memory:>20}")
