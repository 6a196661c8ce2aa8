"""tools/soak grow: ranks of elastic jobs die, at fail points of a join or at any moment, and `horo run` starts others
in their places, which join. All that are there at the end have one state, which an oracle computes from the members of
each step. In half of the jobs the victims are those that join, in the others donors, or all but one. In the last jobs
ranks are stopped and evicted, continue, and join again in their own processes.
"""

import collections
import random
import re

from . import grow_series, survivors

STEPS = 150
PAUSE_MS = 5  # after each step, so that processes that join find the job running
VALUES = (7, 5_000, 300_000)  # of the state
RESTARTS = 100
STOPPED_STEPS, STOP_MS, EVICT_AFTER_S = 900, 4_000, 0.5  # of jobs with ranks that are stopped
LONGEST_BORDER_MS = 3_000  # a rank that joins is given up after a second
LIMIT_S = 25
MASK_BITS = 50
PERIOD = 97  # of the values of growing_rank
MOST_WRONG = 10
OF_JOINER = "join.ready join.view start.connected start.agreed lane.reduced lane.committed border.released".split()
OF_JOINER += "transfer.met transfer.may_read transfer.piece transfer.read".split()
OF_MEMBER = (
    "border.released border.drained border.left engine.view engine.settled engine.connected engine.agreed".split()
)
OF_MEMBER += (
    "engine.installed lane.data lane.reduced lane.delivered engine.released engine.freeze engine.stopped".split()
)
OF_MEMBER += "transfer.met transfer.may_read transfer.read".split()

STOP_POINTS = "join.ready join.view start.agreed transfer.met transfer.piece".split()

LINE = re.compile(
    r"^\[(\d+)\] grown (\d+) hash (\w+) sum (\d+) members (\S+) step (\d+) ms border (\d+) ms$", re.MULTILINE
)
RETURNED = re.compile(r"^horo run: rank (\d+) runs again, and joins as rank", re.MULTILINE)
JOINED = re.compile(r"^horo run: rank (\d+) has joined", re.MULTILINE)

Grown = collections.namedtuple("Grown", "member hash sum members step_ms border_ms")


def add_arguments(parser):
    parser.add_argument("--runs", type=int, default=300, help="jobs with deaths at fail points (default: 300)")
    parser.add_argument("--random", type=int, default=100, help="jobs with deaths at random moments (default: 100)")
    parser.add_argument("--stops", type=int, default=20, help="jobs with ranks that are stopped (default: 20)")
    text = "deaths and joins one after the other in one job, whose other processes stay (default: 0)"
    parser.add_argument("--series", type=int, default=0, help=text)
    horo, rank = "build/release/tools/horo/horo", "build/release/tests/horo/growing_rank"
    parser.add_argument("--horo", default=str(survivors.ROOT / horo), help="the horo executable")
    parser.add_argument("--rank", default=str(survivors.ROOT / rank), help="the rank program")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help=f"longest job in seconds (default: {LIMIT_S})")
    parser.set_defaults(per_host=None, devices="")


def job_of(number, what, kills, chance, options):
    values = chance.choice(VALUES)
    rank = [options.rank, str(STEPS), str(values)]
    own = ("--restarts", str(RESTARTS), "-v")
    more = (("TEST_PAUSE_MS", str(PAUSE_MS)), ("VALUES", str(values)))
    return survivors.Job(what, chance.choice([2, 3, 4]), "", STEPS, number, kills, "", own, rank, more)


def at_point(number, options):
    """A first death of a rank of the start, whose place the victim takes, or in whose border a member dies."""
    chance = random.Random(f"{options.seed}/grow/{number}")
    points = [("joiner", point) for point in OF_JOINER] + [("member", point) for point in OF_MEMBER]
    who, point = points[5 * number % len(points)]  # few jobs have points of both kinds
    job = job_of(number, f"{who} {point}", "", chance, options)
    first = chance.randrange(job.size)
    kills = [f"{first}:lane.reduced:{chance.randint(2, 20)}"]
    if who == "joiner":
        kills.append(f"{job.size}:{point}:{chance.randint(1, 3)}")
    else:
        others = [rank for rank in range(job.size) if rank != first]
        victims = others if chance.random() < 0.2 else [chance.choice(others)]
        count = chance.randint(1, 30) if point.startswith(("lane", "engine.released")) else chance.randint(1, 2)
        kills += [f"{victim}:{point}:{count}" for victim in victims]
    return job._replace(kills=",".join(kills))


def at_random(number, options):
    """Many deaths: each process, also those that join, ends after a random time."""
    chance = random.Random(f"{options.seed}/grow-random/{number}")
    job = job_of(number, "random", "", chance, options)
    victims = chance.sample(range(job.size + 8), chance.randint(2, job.size + 4))
    kills = [f"{victim}:after:{chance.randrange(1_500_000)}" for victim in victims]
    return job._replace(kills=",".join(kills))


def stopped(number, options):
    """Ranks that are stopped for so long that they are evicted, and a death in some of the jobs."""
    chance = random.Random(f"{options.seed}/grow-stops/{number}")
    job = job_of(number, "stops", "", chance, options)._replace(size=chance.choice([3, 4]), steps=STOPPED_STEPS)
    victims = chance.sample(range(job.size), chance.randint(1, 2))
    stops = [f"{victim}:after:{chance.randrange(100_000, 1_500_000)}" for victim in victims]
    others = [rank for rank in range(job.size) if rank not in victims]
    deaths = [f"{others[0]}:after:{chance.randrange(6_000_000)}"] if len(others) > 1 and chance.random() < 0.6 else []
    if number % 3 == 2:  # a rank that joins, while the others stand and wait for it
        deaths = [f"{victims[0]}:lane.reduced:{chance.randint(2, 20)}"]
        stops = [f"{job.size}:{chance.choice(STOP_POINTS)}:1"]
    rank = [options.rank, str(STOPPED_STEPS), job.rank[2]]
    own = (*job.options, "--evict-after", str(EVICT_AFTER_S))
    more = (*job.more, ("TEST_STOP_MS", str(STOP_MS)))
    return job._replace(kills=",".join(deaths), stops=",".join(stops), rank=rank, options=own, more=more)


def members_of(text, steps):
    """The members of each step."""
    starts = [(int(step), masks.split("+")) for step, masks in (one.split(":") for one in text.split(","))]
    for (step, masks), (end, _) in zip(starts, [*starts[1:], (steps, None)]):
        ids = [
            place * MASK_BITS + bit
            for place, mask in enumerate(masks)
            for bit in range(MASK_BITS)
            if int(mask) >> bit & 1
        ]
        for _ in range(step, end):
            yield ids


def sum_of(text, steps, values):
    """The weighted sum of the state after these members."""
    state = [0] * PERIOD
    for step, ids in enumerate(members_of(text, steps)):
        for member in ids:
            begin = member * 31 + step * 17
            for place in range(PERIOD):
                state[place] += (begin + place) % PERIOD
    whole, rest = divmod(values, PERIOD)
    total = sum(one * (place + 1) * (whole + (place < rest)) for place, one in enumerate(state))
    return total % (1 << 64)


def ends_of(text):
    """A Grown for each rank that has come to its end."""
    return [
        Grown(int(line[1]), line[2], int(line[3]), line[4], int(line[5]), int(line[6])) for line in LINE.findall(text)
    ]


def faults(job, outcome, limit_s):
    lines = ends_of(outcome.text)
    wrong = [f"the job took {outcome.seconds:.1f} s"] * (outcome.seconds > limit_s)
    died = {rank for rank, _ in survivors.fired(outcome)}
    have_state = {*range(job.size), *map(int, JOINED.findall(outcome.text))}
    if not have_state - died and not lines:  # the job has to end
        return wrong + ["exit code 0 of a job whose state is lost"] * (outcome.code == 0)
    if outcome.code != 0:
        return [*wrong, f"exit code {outcome.code}"]
    if not lines:
        return [*wrong, "no rank has come to its end"]
    if len({(line.hash, line.sum, line.members) for line in lines}) > 1:
        wrong.append("the ranks have different states")
    if sum_of(lines[0].members, job.steps, int(dict(job.more)["VALUES"])) != lines[0].sum:
        wrong.append("the state is not that of the oracle")
    if any(line.border_ms > LONGEST_BORDER_MS for line in lines):
        wrong.append(f"a border of more than {LONGEST_BORDER_MS} ms")
    last = list(members_of(lines[0].members, job.steps))[-1]
    missing = set(last) - {line.member for line in lines} - died
    if missing:
        wrong.append(f"ranks {sorted(missing)} of the last step print no end")
    return wrong


def run_all(options):
    rows, wrong, joins, returns, borders = {}, [], 0, 0, []
    jobs = [at_point(number, options) for number in range(options.runs)]
    jobs += [at_random(number, options) for number in range(options.random)]
    jobs += [stopped(number, options) for number in range(options.stops)]
    for number, job in enumerate(jobs):
        outcome = survivors.run(job, options, kill_after_s=3 * options.limit)
        found = faults(job, outcome, options.limit)
        joined = len(JOINED.findall(outcome.text))
        joins += joined
        returns += len(RETURNED.findall(outcome.text))
        borders += [one.border_ms for one in ends_of(outcome.text) if one.border_ms > 0]
        row = rows.setdefault(job.what, {"runs": 0, "fired": 0, "joins": 0, "wrong": 0, "longest_s": 0.0})
        row["runs"] += 1
        row["fired"] += len(survivors.fired(outcome))
        row["joins"] += joined
        row["wrong"] += bool(found)
        row["longest_s"] = max(row["longest_s"], round(outcome.seconds, 2))
        if found:
            text = "\n".join("    " + line for line in outcome.text.splitlines()[-40:])
            wrong.append(f"{job.what}: {'; '.join(found)}\n    {survivors.command_line(job, options)}\n{text}")
            if not options.json:
                print(wrong[-1].partition("\n")[0], flush=True)
        elif not options.json and number % 20 == 19:
            print(f"{number + 1} jobs, {joins} joins, {len(wrong)} failed", flush=True)
        if len(wrong) == MOST_WRONG:
            break
    if len(jobs) >= 40 and joins < len(jobs) / 3:
        wrong.append(f"only {joins} joins in {len(jobs)} jobs")
    if returns < options.stops / 3:
        wrong.append(f"only {returns} ranks joined again in {options.stops} jobs with ranks that are stopped")
    series = None
    if options.series:
        series_joins, found, (step_ms, border_ms) = grow_series.run(options)
        joins += series_joins
        wrong += [f"series: {one}" for one in found]
        series = {"joins": series_joins, "step_ms_max": step_ms, "border_ms_max": border_ms}
    borders.sort()
    median = borders[len(borders) // 2] if borders else None
    return {
        "jobs": sum(row["runs"] for row in rows.values()),
        "joins": joins,
        "returns": returns,
        "border_ms_median": median,
        "border_ms_max": borders[-1] if borders else None,
        "series": series,
        "table": rows,
        "wrong": wrong,
    }


def show(summary):
    print(f"\n{'point':<28}{'runs':>6}{'fired':>7}{'joins':>7}{'wrong':>7}{'longest':>10}")
    for what, row in summary["table"].items():
        print(
            f"{what:<28}{row['runs']:>6}{row['fired']:>7}{row['joins']:>7}{row['wrong']:>7}{row['longest_s']:>8.2f} s"
        )
    if summary["series"]:
        print(
            "series of {joins} joins: longest step {step_ms_max} ms, longest border {border_ms_max} ms".format(
                **summary["series"]
            )
        )
    print(
        f"{summary['joins']} joins, {summary['returns']} of them by ranks that were evicted; "
        f"longest border of a rank: median {summary['border_ms_median']} ms, "
        f"at most {summary['border_ms_max']} ms"
    )
