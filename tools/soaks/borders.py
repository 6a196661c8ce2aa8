"""tools/soak borders: ranks of scripts for Horovod die at each collective of State.sync() and of the reset callbacks,
before or after they have submitted it: at the start, and when a rank has joined. Others join in their places. The state
of all has one origin and one age. And ranks that make calls of all kinds die and are replaced: each result is that of
numpy, on those that are left and on those that join.
"""

import itertools
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests/python"
IN_SYNC = TESTS / "elastic_scripts/killed_in_sync.py"
EVERY_CALL = TESTS / "programs/elastic_every_call.py"
SCRIPTS = ("counting", "by_hand")
# Where a rank may die in a step of EVERY_CALL; not before a message between two others, which have other numbers then.
KINDS = "reductions gathers roots parts grouped handles arrays sets norms".split()
SIZE, LIMIT_S = 3, 60
PLACE = re.compile(r"^\[\d+\] did (\w+):(\d+) of (\d+)$", re.MULTILINE)
END = re.compile(r"^\[(\d+)\] end (.*)$", re.MULTILINE)
DIES = re.compile(r"^\[\d+\] dies ", re.MULTILINE)


def add_arguments(parser):
    text = "so many jobs with deaths in sync() and reset callbacks, and calls of all kinds (default: all places)"
    parser.add_argument("--runs", type=int, nargs=2, metavar=("SYNC", "CALLS"), help=text)
    parser.add_argument("--scripts", nargs="+", choices=SCRIPTS, default=SCRIPTS, help="(default: both)")
    parser.add_argument("--horo", default=str(ROOT / "build/release/tools/horo/horo"), help="the horo executable")


def command(options, words):
    run = [options.horo, "run", "-n", str(SIZE), "--min-np", "1", "--timeout", str(LIMIT_S)]
    return [*run, sys.executable, *map(str, words)]


def run(options, words):
    """(exit code, output, errors, seconds) of a job."""
    begin = time.monotonic()
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command(options, words), capture_output=True, text=True, timeout=2 * LIMIT_S, env=env)
    return done.returncode, done.stdout, done.stderr, time.monotonic() - begin


def faults(code, output, deaths):
    """deaths: the number of ranks that die."""
    ends = END.findall(output)
    wrong = [f"exit code {code}"] * (code != 0)
    if len(DIES.findall(output)) != deaths:
        wrong.append(f"{len(DIES.findall(output))} deaths of {deaths}")
    if len(ends) != SIZE:
        wrong.append(f"{len(ends)} ranks have come to the end")
    if len({end for _, end in ends}) > 1:
        wrong.append("the ranks have different states")
    return wrong


def places_of(options, script):
    """{(place, growths): number of collectives}, of a job in which a rank dies at the start."""
    _, output, errors, _ = run(options, [IN_SYNC, script, "1:sync:0:1:before"])
    counts = {(place, int(growths)): int(count) for place, growths, count in PLACE.findall(output)}
    assert ("sync", 0) in counts and ("sync", 1) in counts and ("reset", 1) in counts, output + errors
    return counts


def sync_jobs(options, script, chance):
    """A job for each place in a growth, in which ranks die at the start and in the next growth, too."""
    counts = places_of(options, script)
    whens, victims = ("before", "after"), ("root", "joiner", "other")
    starts = [*itertools.product(range(1, counts["sync", 0] + 1), whens, range(SIZE))]
    places = [(place, number) for place in ("sync", "reset") for number in range(1, counts[place, 1] + 1)]
    growths = [*itertools.product(places, whens, victims)]
    for one in (starts, growths):
        chance.shuffle(one)
    for job, first in enumerate(growths):
        number, when, victim = starts[job % len(starts)]
        members, words = [0, 1, 2], [f"{victim}:sync:0:{number}:{when}"]
        for growth, ((place, number), when, who) in enumerate((first, growths[(7 * job + 3) % len(growths)]), 1):
            members = [one for one in members if one != victim] + [SIZE - 1 + growth]
            victim = {"root": members[0], "other": members[1], "joiner": members[2]}[who]
            words.append(f"{victim}:{place}:{growth}:{number}:{when}")
        yield [IN_SYNC, script, *words]


def call_jobs(chance):
    """A job for each kind of calls, rank and step in which it dies, and another death when a rank has joined."""
    horovods = [*itertools.product(("horovod",), range(SIZE), (0, 1), KINDS)]
    states = [*itertools.product(("state",), range(SIZE), (0, 1, 2), KINDS[:1])]
    jobs = [*horovods, *states]
    chance.shuffle(jobs)
    for style, victim, step, kind in jobs:
        second = chance.choice([member for member in (0, 1, 2, 3) if member != victim])
        later = chance.choice(KINDS if style == "horovod" else KINDS[:1])
        yield [EVERY_CALL, style, f"{victim}:{step}:{kind}", f"{second}:{chance.choice((4, 5))}:{later}"]


def run_all(options):
    chance = random.Random(f"{options.seed}/borders")
    of_sync = [job for script in options.scripts for job in sync_jobs(options, script, chance)]
    of_calls = [*call_jobs(chance)]
    if options.runs:
        chance.shuffle(of_sync)
        of_sync, of_calls = of_sync[: options.runs[0]], of_calls[: options.runs[1]]
    wrong, deaths, longest_s = [], 0, 0.0
    for number, words in enumerate([*of_sync, *of_calls], 1):
        code, output, errors, seconds = run(options, words)
        found = faults(code, output, len(words) - 2)
        deaths, longest_s = deaths + len(words) - 2, max(longest_s, round(seconds, 1))
        if found:
            text = "\n".join("    " + line for line in (output + errors).splitlines()[-60:])
            wrong.append(f"{'; '.join(found)}\n    {shlex.join(command(options, words))}\n{text}")
        if not options.json and (found or number % 20 == 0):
            print(f"{number} jobs, {len(wrong)} failed", flush=True)
    return {"sync": len(of_sync), "calls": len(of_calls), "deaths": deaths, "longest_s": longest_s, "wrong": wrong}


def show(summary):
    print(
        "{sync} jobs with deaths while states are synchronised, {calls} with calls of all kinds; {deaths} deaths; "
        "longest job {longest_s} s".format(**summary)
    )
