"""tools/soak mistakes: ranks that disagree, never submit, leave, fail or make invalid calls, several at the same time
as correct calls. Each mistake must end within its limit on all ranks, with the same text if they share a call, and name
the rank that made it. Correct calls must succeed, at the same time and afterwards.

One job has several rounds of mistakes and a last mistake that ends it, because process starts take most of the time.
"""

import collections
import concurrent.futures
import json
import os
import random
import sys
import tempfile

import ranks
from soaks import mistakes_list

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mistakes_worker.py")
MOST_IN_A_ROUND = 4
ROUNDS = 8
MISSING_PERCENT = 8  # of the rounds have tensors that a rank never submits; those rounds take as long as the limit
SLACK_MS = 10_000  # beyond the limits of the settings, for a loaded machine

Job = collections.namedtuple("Job", "number size rounds ending")
Ended = collections.namedtuple("Ended", "mistakes wrong")  # {number: (kind, slowest rank's ms)}, messages


def add_arguments(parser):
    parser.add_argument("--count", type=int, default=2000, help="number of mistakes (default: 2000)")
    parser.add_argument("--ranks", default="2,3,4", help="numbers of ranks (default: 2,3,4)")
    parser.add_argument("--limit-ms", type=int, default=3000, help="HORO_STALL_LIMIT_MS (default: 3000)")
    parser.add_argument("--jobs", type=int, default=2, help="jobs that run at the same time (default: 2)")


def draw_round(chance, size, numbers, count):
    """Draws mistakes that can be made at the same time."""
    quick = [*mistakes_list.DISAGREEMENTS, *mistakes_list.REFUSED, *mistakes_list.HARMLESS]
    kinds = list(mistakes_list.MISSING) * 8 + quick if chance.random() * 100 < MISSING_PERCENT else quick
    drawn = []
    while len(drawn) < count:
        kind = chance.choice(kinds)
        used = {one["kind"] for one in drawn}
        if any(kind in alone and used & alone for alone in mistakes_list.ALONE_IN_A_ROUND.values()):
            continue
        drawn.append({"number": next(numbers), "kind": kind, "culprit": chance.randrange(size)})
    return drawn


def jobs_of(options):
    chance, numbers = random.Random(options.seed), iter(range(options.count))
    left = options.count
    for number in range(options.count):
        if left == 0:
            return
        size = int(chance.choice(options.ranks.split(",")))
        ending = {"kind": chance.choice(mistakes_list.ENDINGS), "culprit": chance.randrange(size)}
        left -= 1
        rounds = []
        while ending["kind"] != "other setting" and left > 0 and len(rounds) < ROUNDS:
            count = min(left, chance.randint(1, MOST_IN_A_ROUND))
            left -= count
            rounds.append(draw_round(chance, size, numbers, count))
        yield Job(number, size, rounds, ending | {"number": next(numbers)})


def run(job, options):
    """Runs one job and checks its reports."""
    answer_ms = max(1000, options.limit_ms)
    with tempfile.NamedTemporaryFile(prefix="horo_rendezvous") as rendezvous:
        rendezvous.truncate(8 * job.size)
        task = {"seed": options.seed, "job": job.number, "rounds": job.rounds, "ending": job.ending}
        task |= {"rendezvous": rendezvous.name, "limit_ms": options.limit_ms, "answer_ms": answer_ms}
        stalls = sum(any(one["kind"] in mistakes_list.MISSING for one in some) for some in job.rounds)
        deadline_s = 120 + stalls * (options.limit_ms + answer_ms) / 1000
        ended = ranks.run_ranks([sys.executable, WORKER, json.dumps(task)], job.size, deadline_s)
    described = [*(one for some in job.rounds for one in some), job.ending]
    reports = collections.defaultdict(list)
    for rank in ended:
        for line in rank.output.splitlines():
            if line.startswith('{"number"'):
                report = json.loads(line)
                reports[report["number"]].append(report)
    wrong = [text for one in described for text in judge(one, reports[one["number"]], job, options)]
    wrong += bad_ends(job, ended)
    if wrong:
        wrong.append(f"job {job.number} of {job.size} ranks printed:\n{ranks.RanksFailed(ended)}")
    return Ended({one["number"]: (one["kind"], slowest_ms(reports[one["number"]])) for one in described}, wrong)


def slowest_ms(reports):
    return max((report["ms"] for report in reports), default=0)


def limit_of(kind, options):
    """The limit in milliseconds for the end of such a mistake on a rank."""
    stalls = options.limit_ms + max(1000, options.limit_ms)
    return stalls + SLACK_MS if kind in mistakes_list.MISSING else options.limit_ms + SLACK_MS


def judge(described, reports, job, options):
    """The failures of one mistake, over all ranks."""
    kind = described["kind"]
    what = f"mistake {described['number']} ({kind}, rank {described['culprit']} of {job.size})"
    silent = kind in mistakes_list.ENDINGS and kind != "other setting"  # the culprit is gone
    if len(reports) != job.size - silent:
        yield f"{what}: {len(reports)} ranks reported its end"
    for report in reports:
        if report["wrong"]:
            yield f"{what}: rank {report['rank']} {report['wrong']}"
        if report["ms"] > limit_of(kind, options):
            yield f"{what}: rank {report['rank']} took {report['ms']} ms, expected at most {limit_of(kind, options)}"
    shared = {report["text"] for report in reports if report["said"] == "Mismatch"}
    if len(shared) > 1:
        yield f"{what}: ranks report different texts: {sorted(shared)}"


def bad_ends(job, ended):
    """Ranks that were killed or have an unexpected exit status."""
    for rank in ended:
        wanted = int(job.ending["kind"] == "exception" and rank.rank == job.ending["culprit"])
        if rank.code != wanted:
            yield f"job {job.number}: rank {rank.rank} of {job.size} ended with {rank.code}, expected {wanted}"


def run_all(options):
    made, wrong = {}, []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for ended in pool.map(lambda job: run(job, options), jobs_of(options)):
            made |= ended.mistakes
            wrong += ended.wrong
            if not options.json:
                print(f"{len(made)} mistakes, {len(ended.wrong)} findings in the last job", flush=True)
    by_kind = collections.defaultdict(list)
    for kind, ms in made.values():
        by_kind[kind].append(ms)
    rows = [{"kind": kind, "count": len(all_ms), "median_ms": sorted(all_ms)[len(all_ms) // 2], "most_ms": max(all_ms)}
            for kind, all_ms in sorted(by_kind.items())]  # fmt: skip
    if len(made) != options.count:
        wrong.append(f"{len(made)} mistakes were made, expected {options.count}")
    return {"mistakes": len(made), "rows": rows, "wrong": wrong}


def show(summary):
    print(f"\n{'mistake':<20} {'count':>5} {'median ms':>9} {'most ms':>7}")
    for row in summary["rows"]:
        print(f"{row['kind']:<20} {row['count']:>5} {row['median_ms']:>9} {row['most_ms']:>7}")
    print(f"{summary['mistakes']} mistakes")
