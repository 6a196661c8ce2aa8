"""tools/soak zero: jobs of learn_worker.py whose ranks divide the state of the optimizer (horo.zero), and die: at
random moments, at each named place of a step, two in one step, and in a series of 4 -> 3 -> 5 -> 2 ranks; others join
in their places. All ranks end with the bits of one process whose optimizer is not divided, and which gets the members
and samples of each round; their checkpoints are whole. If a rank and its buddy are lost together, and only then, all
ranks raise the same ShardLost.
"""

import collections
import itertools
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from . import learn, survivors
from .learn_plans import Plan
from .zero_places import AFTER_A_DEATH, IN_STEP

KINDS = ("moments", "places", "moments", "twice", "moments", "pair", "moments", "places", "moments", "series")
WAYS = ("blocks", "tensors")
PLACES = ("batch", "forward", "backward", "after", "pass", *IN_STEP)
MOMENT_US = 6000  # at most, from the beginning of a batch; a step takes some 4 ms
LAST_STEP = 40  # of a first death
SERIES = [4, 3, 5, 2]
# Members that die so many steps after there are 5: before others have joined, and no two that are buddies.
IN_A_ROW = {2: 4, 5: 5, 3: 7}
LATER_IDS = 4  # numbers of processes that may die after they have joined
APART = 2  # steps between two deaths before the state is dealt anew: in the second one the step may be left out
LOST = re.compile(r"^\[(\d+)\] lost (.*)$", re.M)
PAIR = re.compile(r"member (\d+) was lost, and so was its buddy, member (\d+): ")


def add_arguments(parser):
    parser.add_argument("--jobs", type=int, default=100, help="number of jobs (default: 100)")
    what = "after --jobs, further ones until there are so many deaths at random moments (default: none)"
    parser.add_argument("--random-deaths", type=int, default=0, help=what)
    parser.add_argument("--first", type=int, default=0, help="the number of the first job (default: 0)")
    parser.add_argument("--kinds", nargs="+", choices=sorted(set(KINDS)), help="of the jobs, in turn (default: all)")
    horo = survivors.ROOT / "build/release/tools/horo/horo"
    parser.add_argument("--horo", default=str(horo), help="the horo executable")
    parser.add_argument("--limit", type=float, default=120, help="longest job in seconds (default: 120)")
    parser.set_defaults(per_host=None, devices="", passes=None, fault="")


def kill(step, place, delay_us=0):
    return [["kill", step, place, delay_us, 0]]


def plan_of(chance, number, kind):
    """See learn_plans.Plan. One member of the start stays."""
    size, passes, resizes, events = chance.choice([3, 4, 5]), 8, [], {}
    if kind == "series":
        size, passes, resizes = 4, 20, [(10, max(SERIES))]
        events = {1: kill(chance.randint(2, 6), chance.choice(IN_STEP))}
        events |= {member: kill(step, "full") for member, step in IN_A_ROW.items()}
    elif kind in ("twice", "pair"):
        size = 5
        first, step = chance.randrange(size), chance.randint(2, LAST_STEP)
        second = (first + (2 if kind == "twice" else 1)) % size
        events = {first: kill(step, "updated"), second: kill(step, "updated")}
        if kind == "twice":
            events[second] = kill(step, AFTER_A_DEATH[number // len(KINDS) % len(AFTER_A_DEATH)])
    else:
        for member in chance.sample(range(size), size - 1) + [size + later for later in range(LATER_IDS)]:
            step = chance.randint(1, LAST_STEP if member < size else 2 * LAST_STEP)
            if member >= size and chance.random() < 0.5:
                continue
            timer = kill(step, "timer", chance.randint(1, MOMENT_US))
            events[member] = timer if kind == "moments" else kill(step, chance.choice(PLACES))
    return Plan(kind, number, chance.choice(WAYS), size, passes, 1, events, resizes, False)


def deaths_of(text):
    """{member: (place, step)}"""
    found = {}
    for member, where in learn.killed(text):
        place, _, step = where.partition("@")
        found[member] = place, int(step)
    return found


def faults_of_lost(told, text, losses):
    """losses: {member: what it has raised}. They are the same on all ranks, and have a cause."""
    deaths, reference = deaths_of(text), min(losses)
    if len(set(losses.values())) > 1:
        yield f"the ranks raise different errors: {losses}"
    last = learn.numbers(told.logs[reference][-1][1].split(" ")[-1])
    if missing := set(last) - set(losses) - set(deaths):
        yield f"ranks {sorted(missing)} have neither died nor raised ShardLost"
    pair = PAIR.search(losses[reference])
    steps = [deaths[int(member)][1] for member in pair.groups() if int(member) in deaths] if pair else []
    if len(steps) != 2 or abs(steps[0] - steps[1]) > APART:
        yield f"no such deaths: {losses[reference]}"
    yield from learn.differences_of_logs(told, reference)


def sizes_of(told, reference):
    """The numbers of ranks of the rounds, each once."""
    found = []
    for what, rest in told.logs[reference]:
        size = len(learn.numbers(rest.split(" ")[-1]))
        if what == "round" and found[-1:] != [size]:
            found.append(size)
    return found


def faults(plan, outcome, told, losses, interpreter):
    """What is wrong with a job: texts."""
    if losses:
        wrong = list(faults_of_lost(told, outcome.text, losses))
        return wrong + ["a rank and its buddy were not lost together"] * (plan.what in ("twice", "series"))
    if plan.what == "pair":
        return ["no rank has raised ShardLost"]
    wrong = learn.faults(plan, outcome, told, plan.passes, interpreter)
    if not wrong and plan.what == "series":
        sizes = sizes_of(told, told.reference(plan.size))
        left = iter(sizes)
        wrong = [f"the numbers of ranks were {sizes}"] * (not all(size in left for size in SERIES))
    return wrong


def faults_of_kept(horo, folder):
    """Of the checkpoints that the job has saved meanwhile."""
    found = sorted(pathlib.Path(folder).glob("step-*"))
    if not found:
        return ["no checkpoint was written"]
    done = subprocess.run([horo, "checkpoint", "verify", str(found[-1])], capture_output=True, text=True, timeout=60)
    return [f"{found[-1].name}: {done.stdout}{done.stderr}"] * (done.returncode != 0)


def run_one(plan, options, interpreter):
    """The row of a job, the places of its deaths, and a text if it is wrong."""
    job = learn.job_of(plan, options, interpreter)
    more = dict(job.more) | {"LEARN_ENOUGH": str(max(SERIES) if plan.what == "series" else plan.size)}
    own = ("--restarts", "100", "--max-np", str(plan.size + 2), "-v")
    running = learn.Running(options.horo, plan.resizes)
    with tempfile.TemporaryDirectory(prefix="horo_zero_") as folder:
        job = job._replace(options=own, more=(*more.items(), ("LEARN_KEEP", folder)))
        try:
            outcome = survivors.run(job, options, running, options.limit)
        finally:
            running.end()
        kept = faults_of_kept(options.horo, folder)
    told, losses = learn.Told(outcome.text), {int(member): text for member, text in LOST.findall(outcome.text)}
    found = faults(plan, outcome, told, losses, interpreter) + ([] if losses else kept)
    deaths = [place for place, _ in deaths_of(outcome.text).values()]
    row = {"jobs": 1, "deaths": len(deaths), "joins": len(learn.JOINED.findall(outcome.text))}
    row |= {"lost": int(bool(losses)), "wrong": int(bool(found))}
    return row, deaths, learn.told_of(plan, job, outcome, found, options) if found else None


def run_all(options):
    interpreter = learn.python()
    kinds = options.kinds or KINDS
    table, places, wrong = {}, collections.Counter(), []
    if options.random_deaths and "moments" not in kinds:
        sys.exit("soak zero: --random-deaths without --kinds moments; expected that kind among the kinds")
    for number in itertools.count(options.first):
        if number >= options.first + options.jobs and places["timer"] >= options.random_deaths:
            break
        kind = kinds[number % len(kinds)]
        plan = plan_of(random.Random(f"{options.seed}/zero/{number}"), number, kind)
        row, deaths, fault = run_one(plan, options, interpreter)
        table.setdefault(kind, collections.Counter()).update(row)
        places.update(deaths)
        if fault:
            wrong.append(fault)
        if not options.json:
            print(f"{kind} {number}: {row}: {fault.partition(chr(10))[0] if fault else 'right'}", flush=True)
        if len(wrong) == learn.MOST_WRONG:
            break
    return {"table": {kind: dict(row) for kind, row in table.items()}, "places": dict(places), "wrong": wrong}


def show(summary):
    columns = "jobs deaths joins lost wrong".split()
    print(f"\n{'kind':<10}" + "".join(f"{column:>8}" for column in columns))
    for kind, row in summary["table"].items():
        print(f"{kind:<10}" + "".join(f"{row[column]:>8}" for column in columns))
    random_ones = summary["places"].get("timer", 0)
    print(f"{random_ones} random deaths, {sum(summary['places'].values()) - random_ones} others")
    print("deaths: " + ", ".join(f"{place} {count}" for place, count in sorted(summary["places"].items())))
