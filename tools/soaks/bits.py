"""tools/soak bits: the same tensors, reduced under random bucket sizes, delays and orders of submission, have the same
bits every time: one sha256 per number of ranks. With order="fast" the hashes differ, which shows that the test can
fail.

With --line every other job in canonical order runs on two hosts, connected by a relay with these orders (see the --help
of tools/relay): the bits are the same as on one host with shared memory.
With --backends auto,mpi half of the schedules run over MPI (HORO_BACKEND=mpi, under mpirun), with the same bits.
"""

import collections
import contextlib
import hashlib
import itertools
import json
import os
import random
import sys
import tempfile

import hosts
import ranks

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bits_worker.py")
MOST_BUCKET_BYTES = 64 << 20
WANTED_COMPOSITIONS = 20
WANTED_FAST_HASHES = 2

Job = collections.namedtuple("Job", "size order torch backend schedules is_apart", defaults=[False])


def add_arguments(parser):
    parser.add_argument("--schedules", type=int, default=100, help="with the canonical order (default: 100)")
    parser.add_argument("--fast-schedules", type=int, help="with the fast order (default: a fifth as many, at least 6)")
    parser.add_argument("--torch-schedules", type=int, help="of the canonical ones (default: at most 5)")
    parser.add_argument("--ranks", default="2,3,4,5", help="numbers of ranks (default: 2,3,4,5)")
    parser.add_argument(
        "--line", help='also on two hosts: "delay 1ms, loss 0.1%%"; "delay 0" for a line without faults'
    )
    parser.add_argument(
        "--backends",
        default="auto",
        help="auto, mpi or auto,mpi: schedules alternate between them, with the same hashes",
    )
    parser.add_argument("--steps", type=int, default=4, help="of each schedule (default: 4)")


def bucket_bytes(chance):
    """0, or a random size up to 64 MiB with a uniform logarithm."""
    return 0 if chance.random() < 0.1 else int(64 * (MOST_BUCKET_BYTES / 64) ** chance.random())


def jobs_of(options):
    """One job per number of ranks and order, because process starts are slow; one job with torch."""
    chance = random.Random(options.seed)
    sizes = [int(size) for size in options.ranks.split(",")]
    fast_sizes = [size for size in sizes if size > 2] or sizes  # the sum of two numbers does not depend on the order
    with_torch = min(5, options.schedules // 4) if options.torch_schedules is None else options.torch_schedules
    fast = options.fast_schedules or max(6, options.schedules // 5)
    shares = [(sizes, "canonical", False, options.schedules - with_torch), (fast_sizes, "fast", False, fast)]
    shares.append((sizes[1:2] or sizes, "canonical", True, with_torch))
    backends = options.backends.split(",")
    for among, order, uses_torch, count in shares:
        places = list(itertools.product(among, backends))
        for i, (size, backend) in enumerate(places):
            mine = count // len(places) + (i < count % len(places))
            if mine:
                job = Job(size, order, uses_torch, backend, [bucket_bytes(chance) for _ in range(mine)])
                yield job
                if options.line and order == "canonical" and backend == "auto":
                    yield job._replace(is_apart=True)


def run(job, options, two_hosts):
    """The ranks' reports: a list by schedule of lists by rank."""
    task = {"order": job.order, "torch": job.torch, "steps": options.steps, "seed": options.seed}
    task["bucket_bytes"] = job.schedules
    command = [sys.executable, WORKER, json.dumps(task)]
    # In shared memory the fast order is canonical too.
    env = {"HORO_ALGORITHMS": "all_reduce=ring"} if job.order == "fast" else {}
    env["HORO_BACKEND"] = job.backend
    deadline_s = 60 + 5 * len(job.schedules)
    if job.backend == "mpi":
        ended = ranks.check_ranks(command, job.size, deadline_s, env, ranks.run_by_mpirun)
    else:
        places = hosts.Places(*two_hosts, (job.size - job.size // 2, job.size // 2)) if job.is_apart else None
        ended = ranks.check_ranks(command, job.size, deadline_s, env, places=places)
    printed = [[json.loads(line) for line in rank.output.splitlines() if line.startswith("{")] for rank in ended]
    return list(zip(*printed, strict=True))


def hash_of(reports):
    """The hash of all ranks' results. Reports a difference in results that must be equal on all ranks."""
    alike = {report["alike"] for report in reports}
    if len(alike) != 1:
        return "ranks differ: " + " ".join(sorted(value[:12] for value in alike))
    return hashlib.sha256("".join([*alike, *(report["own"] for report in reports)]).encode()).hexdigest()


@contextlib.contextmanager
def hosts_of(options):
    """Two hosts and a folder with --line, else None."""
    if not options.line:
        yield None
        return
    reason = hosts.missing(line=True)
    if reason:
        raise SystemExit(f"soak bits: {reason}")
    orders = hosts.orders_in(options.line)
    with tempfile.TemporaryDirectory(prefix="horo_soak_") as folder, hosts.two_namespaces(orders, options.seed) as pair:
        yield pair, folder


def soak(options, two_hosts):
    hashes = collections.defaultdict(set)  # (order, size): hashes of all schedules
    counts = collections.Counter()
    compositions = 0  # the maximum over schedules, a lower bound of the number of different ones
    for job in jobs_of(options):
        if not options.json:
            what = " with torch" * job.torch + " over MPI" * (job.backend == "mpi") + " on two hosts" * job.is_apart
            print(f"{job.order}, {job.size} ranks, {len(job.schedules)} schedules{what}", flush=True)
        for reports in run(job, options, two_hosts):
            hashes[job.order, job.size].add(hash_of(reports))
            counts[job.order, job.size] += 1
            compositions = max(compositions, *(report["compositions"] for report in reports))
    return hashes, counts, compositions


def verdict(hashes, compositions):
    """The failures, as messages."""
    wrong = []
    for (order, size), found in sorted(hashes.items()):
        if order == "canonical" and (len(found) != 1 or next(iter(found)).startswith("ranks differ")):
            wrong.append(f"{len(found)} hashes with {size} ranks in canonical order; expected one, equal on all ranks")
    fast = max(len(found) for (order, _), found in hashes.items() if order == "fast")
    if fast < WANTED_FAST_HASHES:
        wrong.append(f"{fast} hash in fast order; expected at least {WANTED_FAST_HASHES}, else this test cannot fail")
    if compositions < WANTED_COMPOSITIONS:
        wrong.append(f"{compositions} compositions of buckets; expected at least {WANTED_COMPOSITIONS}")
    return wrong


def run_all(options):
    with hosts_of(options) as two_hosts:
        hashes, counts, compositions = soak(options, two_hosts)
    rows = [
        {"order": order, "ranks": size, "schedules": counts[order, size], "sha256": sorted(hashes[order, size])}
        for order, size in sorted(hashes)
    ]
    return {"rows": rows, "compositions": compositions, "wrong": verdict(hashes, compositions)}


def show(summary):
    print(f"\n{'order':<10} {'ranks':>5} {'schedules':>9} {'hashes':>6}  sha256")
    for row in summary["rows"]:
        found = row["sha256"]
        print(f"{row['order']:<10} {row['ranks']:>5} {row['schedules']:>9} {len(found):>6}  {found[0]}")
    print(f"at least {summary['compositions']} different compositions of buckets")
