"""tools/soak survive: ranks of elastic jobs end at fail points or at random moments, several of them at once or while
the others install a new epoch. The others go on with equal results that an oracle confirms, and the job succeeds. A
rank that is stopped, evicted and continued changes no result and ends with a text that says so.

--torch, --flat, --busy and --hosts each run other jobs instead:
  --torch JOBS    torch models trained in the ways people use DistributedOptimizer; ranks die at all fail points
  --flat KILLS    ranks live through many epochs; what they and horo run hold must not grow, and nothing is left
  --busy SECONDS  16 busy ranks on all cores, beside a compiler; none of them is given up
  --hosts JOBS    two hosts (network namespaces), whose agents and rendezvous die too
  --partitions N  the two hosts, or one of them and the rendezvous, cannot reach each other
  --restarts N    the rendezvous of two hosts is killed and started again
  --digits        examples/digits.py on two hosts, which loses each part
"""

import random
import re

from . import (
    survive_busy,
    survive_digits,
    survive_flat,
    survive_hosts,
    survive_partitions,
    survive_restarts,
    survive_torch,
    survivors,
    zombies,
)

RUNNING = re.compile(r"lane\.|device\.|engine\.(submitted|report|released)$")  # reached in each step
ONCE = re.compile(r"start\.|shutdown\.")
LATEST_US = 400_000  # about the time of an undisturbed job
AT_ONCE_US = 50_000
ALL_FIRE_FROM = 15  # runs of each fail point
LEAST_HASHED = 50  # jobs of torch models, of which some freeze within a round
MOST_WRONG = 10  # failed jobs, then the soak ends
OTHERS = {  # by option
    "flat": survive_flat,
    "busy": survive_busy,
    "hosts": survive_hosts,
    "partitions": survive_partitions,
    "restarts": survive_restarts,
    "digits": survive_digits,
}


def add_arguments(parser):
    parser.add_argument("--runs", type=int, default=1500, help="jobs with deaths at fail points (default: 1500)")
    parser.add_argument("--random", type=int, default=300, help="jobs with deaths at random moments (default: 300)")
    parser.add_argument("--zombies", type=int, default=200, help="jobs with a rank that is evicted (default: 200)")
    survivors.add_arguments(parser)
    for module in (survive_torch, *OTHERS.values()):
        module.add_arguments(parser)


def fail_points(on_devices=False):
    """The names in the sources of the session but those of joins and saves; those of devices only on request."""
    files = sorted((survivors.ROOT / "horo").rglob("*.cc"))
    names = {name for file in files for name in re.findall(r'fail_point\("([\w.]+)"\)', file.read_text())}
    names = {name for name in names if not name.startswith(("border.", "checkpoint.", "join.", "transfer."))}
    return sorted(name for name in names if on_devices or not name.startswith("device."))


def is_of_change(point):
    """Whether a rank reaches it only in a change of epoch."""
    return not RUNNING.match(point) and not ONCE.match(point)


def at_point(number, points, options):
    """A job with a death at a fail point; those of a change of epoch follow a first death."""
    chance = random.Random(f"{options.seed}/point/{number}")
    point = points[number % len(points)]
    is_change = is_of_change(point)
    size = chance.choice([3, 4] if is_change else [2, 3, 4])
    victims = chance.sample(range(size), 3 if is_change and size == 4 and chance.random() < 0.4 else 2)
    if not is_change:
        count = 1 if ONCE.match(point) else chance.randint(1, 40)
        kills = [f"{victims[0]}:{point}:{count}"]
    else:
        kills = [f"{victims[1]}:lane.reduced:{chance.randint(1, 20)}", f"{victims[0]}:{point}:1"]
        changes = [name for name in points if is_of_change(name)]
        kills += [f"{victim}:{chance.choice(changes)}:{chance.randint(1, 2)}" for victim in victims[2:]]
    program = chance.choice(survivors.PROGRAMS)
    return survivors.Job(point, size, program, options.steps, number, ",".join(kills))


def at_random(number, options):
    """A job with deaths at random moments: one, several at once, or one and another while a new epoch is installed."""
    chance = random.Random(f"{options.seed}/random/{number}")
    what = chance.choice(["random: one", "random: at once", "random: in an install"])
    size, program = chance.choice([2, 3, 4] if what == "random: one" else [3, 4]), chance.choice(survivors.PROGRAMS)
    first = chance.randrange(LATEST_US)
    victims = chance.sample(range(size), 1 if what == "random: one" else chance.randint(2, size - 1))
    kills = [f"{victims[0]}:after:{first}"]
    for victim in victims[1:]:
        if what == "random: at once":
            kills.append(f"{victim}:after:{first + chance.randrange(AT_ONCE_US)}")
        else:
            point = chance.choice(["engine.view", "engine.settled", "engine.connected", "engine.agreed"])
            kills.append(f"{victim}:{point}:1")
    return survivors.Job(what, size, program, options.steps, number, ",".join(kills))


def jobs(points, options):
    if options.torch is not None:
        for number in range(options.torch):
            yield survive_torch.job(number, points, is_of_change, options)
        return
    for number in range(options.runs):
        yield at_point(number, points, options)
    for number in range(options.random):
        yield at_random(number, options)
    for number in range(options.zombies):
        yield zombies.job(number, options)


def run(job, options):
    """Returns the outcome, and faults that survivors.faults() does not find."""
    if job.stops:
        return zombies.run(job, options)
    return (survive_torch.run if job.rank else survivors.run)(job, options), []


def run_all(options):
    for name, module in OTHERS.items():
        if getattr(options, name) is not None:
            return module.run_all(options) | {"what": name}
    return run_jobs(options)


def run_jobs(options):
    points, rows, wrong, bad, hashed = fail_points(options.devices), {}, [], 0, 0
    for number, job in enumerate(jobs(points, options)):
        outcome, found = run(job, options)
        found = found + survivors.faults(job, outcome, options)
        hashed += survive_torch.hashed(outcome)
        row = rows.setdefault(job.what, {"runs": 0, "fired": 0, "wrong": 0, "longest_s": 0.0})
        row["runs"] += 1
        row["wrong"] += bool(found)
        row["longest_s"] = max(row["longest_s"], round(outcome.seconds, 2))
        for _, point in survivors.fired(outcome):
            row["fired"] += point == job.what or job.what not in points
        if found:
            line = survivors.command_line(job, options)
            wrong.append(f"{job.what}: {'; '.join(found)}\n    {line}\n{indented(outcome.text)}")
            bad += 1
            if not options.json:
                print(wrong[-1].partition("\n")[0], flush=True)
        elif not options.json and number % 100 == 99:
            print(f"{number + 1} jobs, {bad} failed", flush=True)
        if bad == MOST_WRONG:
            wrong.append(f"{bad} jobs failed: no more are started")
            break
    silent = [point for point in points if rows.get(point, {"fired": 1})["fired"] == 0]
    if (options.torch or options.runs) >= ALL_FIRE_FROM * len(points) and bad < MOST_WRONG:
        wrong += [f"no rank died at {point}" for point in silent]
    if (options.torch or 0) >= LEAST_HASHED and not hashed and bad < MOST_WRONG:
        wrong.append("in no freeze the inputs of a round were compared with those that were submitted")
    jobs_run = sum(row["runs"] for row in rows.values())
    return {"jobs": jobs_run, "hashed_freezes": hashed, "table": rows, "wrong": wrong}


def indented(text):
    return "\n".join("    " + line for line in text.splitlines()[-25:])


def show(summary):
    if summary.get("what") in OTHERS:
        return OTHERS[summary["what"]].show(summary)
    print(f"\n{'point':<24}{'runs':>6}{'fired':>7}{'wrong':>7}{'longest':>10}")
    for what, row in summary["table"].items():
        print(f"{what:<24}{row['runs']:>6}{row['fired']:>7}{row['wrong']:>7}{row['longest_s']:>8.2f} s")
