"""tools/soak learn: ranks of elastic jobs that train a model die, stop, and are replaced while the others train on.

Jobs for the bits: joins at random rounds, then a long training with AdamW, OneCycleLR, BatchNorm, an average of the
model, GradScaler and clipping, in several ways (--ways). All ranks end with one state, which an oracle in one process
computes from the samples of each round. Jobs for the samples (--events): random deaths, short and long stops and
`horo resize`, with two loader workers that prefetch; each sample is used once per pass in the rounds that count. The
oracle checks these jobs, too, and the samples of the others.
"""

import collections
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress

from . import survivors
from .learn_plans import events_of, plan_for_bits, plan_for_samples

FOLDER = survivors.ROOT / "tools/soaks"
FAKE_CUDA = survivors.ROOT / "build/release/tests/ring/libhoro_fake_cuda.so"
WAYS = "plain mean sync fp16 passes views groups device".split()
AVERAGED = ("mean", "device")
EQUAL_BUFFERS = (*AVERAGED, "sync")
LIMIT_S = 120
MOST_WRONG = 10
SAMPLES = 101  # of learn_model.py, which imports torch

SAID = re.compile(r"^\[(\d+)\] (take|round|mean|change|end|kills|stops|joined) (.*)$", re.M)
JOINED = re.compile(r"^horo run: rank (\d+) has joined: .*the others waited (\d+) ms", re.M)
EVICTED = re.compile(r"^horo run: rank (\d+) is evicted: ", re.M)
ENDED = re.compile(r"\brank (\d+) (died|failed) \(")
PROCESS = re.compile(r"horo run: rank (\d+): process (\d+)(?:, cores .*)?$")
JOB = re.compile(r"horo run: job (\d+)")


def add_arguments(parser):
    parser.add_argument("--runs", type=int, default=40, help="jobs for the bits (default: 40)")
    parser.add_argument("--events", type=int, default=300, help="events in jobs for the samples (default: 300)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="of the jobs for the bits (default: all)")
    parser.add_argument("--passes", type=int, help="over the samples in each job (default: by the number of ranks)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first job (default: 0)")
    horo = survivors.ROOT / "build/release/tools/horo/horo"
    parser.add_argument("--horo", default=str(horo), help="the horo executable")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help=f"longest job in seconds (default: {LIMIT_S})")
    parser.add_argument(
        "--fault", default="", help="a field that the State lacks, such as schedule: it has to be found"
    )
    parser.set_defaults(per_host=None, devices="")


def python():
    """The interpreter of the ranks: one that forks them from a process that has imported torch."""
    if os.path.basename(sys.executable).startswith("python"):
        sys.path.append(str(survivors.ROOT / "tests"))
        sys.path.append(str(survivors.ROOT / "tools"))
        import fork_server
        import ranks

        ranks.start = fork_server.Starter(ranks.start_process)
        return ranks.start.python()
    return sys.executable


class Running:
    """Follows the output of a job: continues the ranks that have stopped themselves, and resizes the job."""

    def __init__(self, horo, resizes):
        self.horo, self.resizes, self.job = horo, list(resizes), ""
        self.timers, self.resized, self.processes = [], 0, {}

    def __call__(self, line):
        if found := JOB.match(line):
            self.job = found[1]
        elif found := PROCESS.match(line):
            self.processes[found[1]] = int(found[2])
        elif found := re.match(r"\[(\d+)\] stops (\d+) ([\d.]+)$", line):
            pids = {self.processes[found[1]], int(found[2])}  # two, if the rank is forked by a stand-in
            send(pids, signal.SIGSTOP)
            self._later(float(found[3]), send, pids, signal.SIGCONT)
        elif self.resizes and (found := re.match(r"\[\d+\] round (\d+) ", line)):
            if int(found[1]) >= self.resizes[0][0]:
                self.resized += 1
                self._later(0, resize, self.horo, self.resizes.pop(0)[1], self.job)

    def _later(self, seconds, *call):
        timer = threading.Timer(seconds, call[0], call[1:])
        timer.start()
        self.timers.append(timer)

    def end(self):
        for timer in self.timers:
            timer.cancel()
            timer.join()


def send(pids, number):
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def resize(horo, count, job):
    subprocess.run([horo, "resize", str(count), job], capture_output=True, timeout=30)


def job_of(plan, options, interpreter):
    passes = options.passes or plan.passes
    rank = (interpreter, str(FOLDER / "learn_worker.py"), plan.way, str(passes))
    more = {"LEARN_EVENTS": json.dumps(plan.events, separators=(",", ":")), "LEARN_ENOUGH": str(plan.size)}
    more |= {"LEARN_WORKERS": str(plan.workers), "LEARN_FAULT": options.fault, "OMP_NUM_THREADS": "1"}
    if plan.way == "device":
        more |= {"TEST_DEVICE": "fake", "HORO_CUDA_LIBRARY": str(FAKE_CUDA)}
    own = ("--restarts", "100", "--max-np", str(plan.size + 2), "--evict-after", "1.5", "-v")
    return survivors.Job(plan.what, plan.size, plan.way, 0, plan.number, "", "", own, rank, tuple(more.items()))


class Told:
    """What the ranks of a job have printed."""

    def __init__(self, text):
        self.takes, self.logs, self.ends = {}, collections.defaultdict(list), {}
        self.counts = collections.Counter()
        self.passes = {}  # of each step
        for rank, what, rest in SAID.findall(text):
            member, words = int(rank), rest.split(" ")
            if what == "take":
                step, number, indices = words
                self.takes[int(step), member] = [int(one) for one in indices.split(",")]
                self.passes[int(step)] = int(number)
            elif what == "end":
                self.ends[member] = json.loads(rest.partition(" ")[2])
            elif what in ("round", "mean", "change"):
                self.logs[member].append((what, rest))
            else:
                self.counts[what] += 1

    def reference(self, size):
        """The member of the start that has come to the end."""
        return min((member for member in self.ends if member < size), default=None)


def numbers(text):
    return [] if text == "-" else [int(one) for one in text.split(",")]


def log_of(lines):
    """The lines of a log for the oracle."""
    for what, rest in lines:
        step, *lists = rest.split(" ")
        if what == "round":
            yield [what, int(step), *map(numbers, lists)]
        else:
            yield [what, *map(numbers, lists)]


def differences_of_logs(told, reference):
    """Each log is a part of that of the reference, without a gap: all ranks have seen the same."""
    everything = told.logs[reference]
    for member, lines in told.logs.items():
        if not lines:
            continue
        first = everything.index(lines[0]) if lines[0] in everything else None
        if first is None or everything[first : first + len(lines)] != lines:
            yield f"rank {member} has seen other rounds than rank {reference}"
        elif member in told.ends and first + len(lines) != len(everything):
            yield f"rank {member} has ended before rank {reference}"


def faults_of_samples(told, reference, passes):
    """Each sample is used once per pass, in the rounds of the log."""
    used, last = collections.defaultdict(list), 0
    for what, *rest in log_of(told.logs[reference]):
        if what != "round":
            continue
        step, contributors, _ = rest
        for one in range(last + 1, step + 1):
            for member in contributors:
                if (one, member) not in told.takes:
                    yield f"rank {member} has contributed to step {one} without a batch"
                used[told.passes[one]] += told.takes.get((one, member), [])
        last = step
    for number in range(passes):
        counts = collections.Counter(used[number])
        if wrong := {index: counts[index] for index in range(SAMPLES) if counts[index] != 1}:
            yield f"pass {number}: samples used other than once: {wrong}"


def faults_of_means(told, reference, way):
    """Buffers are averaged right before ranks join, where that was asked for."""
    lines = told.logs[reference] if way in AVERAGED else []
    for (before, told_before), (what, rest) in zip(lines, lines[1:]):
        has_joined = what == "change" and not rest.endswith(" -")
        if has_joined and before != "mean" and "," in told_before.split(" ")[-1 if before == "round" else 1]:
            yield f"the buffers are not averaged before the change {rest}"


def differences_of_ends(told, way):
    """Between the hashes of the ranks."""
    for what in sorted({what for end in told.ends.values() for what in end}):
        if what != "buffers" or way in EQUAL_BUFFERS:
            hashes = {member: end[what] for member, end in told.ends.items()}
            if len(set(hashes.values())) > 1:
                yield f"the ranks differ in {what}: {hashes}"


def faults_of_oracle(told, reference, way, interpreter):
    takes = [[step, member, indices] for (step, member), indices in told.takes.items()]
    content = {"member": reference, "takes": takes, "log": list(log_of(told.logs[reference]))}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(content, file)
        file.flush()
        words = [interpreter, str(FOLDER / "learn_oracle.py"), way, file.name]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        return [f"the oracle has failed: {done.stderr[-2000:]}"]
    expected, found = json.loads(done.stdout), told.ends[reference]
    compared = [what for what in expected if what != "buffers" or way in EQUAL_BUFFERS]
    return [f"{what} is not that of the oracle" for what in compared if expected[what] != found[what]]


def faults(plan, outcome, told, passes, interpreter):
    """What is wrong with a job: texts."""
    wrong = [f"exit code {outcome.code}"] * (outcome.code != 0)
    reference = told.reference(plan.size)
    if reference is None:
        return [*wrong, "no rank of the start has come to its end"]
    last = numbers(told.logs[reference][-1][1].split(" ")[1 + (told.logs[reference][-1][0] == "round")])
    if missing := set(last) - set(told.ends) - {member for member, _ in killed(outcome.text)}:
        wrong.append(f"ranks {sorted(missing)} have neither died nor come to their ends")
    planned = {(str(member), "died") for member, _ in killed(outcome.text)}
    wrong += [f"rank {' '.join(one)}" for one in sorted(set(ENDED.findall(outcome.text)) - planned)]
    wrong += differences_of_logs(told, reference)
    wrong += faults_of_samples(told, reference, passes)
    wrong += faults_of_means(told, reference, plan.way)
    wrong += differences_of_ends(told, plan.way)
    return wrong or faults_of_oracle(told, reference, plan.way, interpreter)


def killed(text):
    """[(member, place)]"""
    return [(int(rank), where) for rank, where in re.findall(r"^\[(\d+)\] kills (\S+)$", text, re.M)]


def rounds_after_the_last_join(told, reference):
    lines = told.logs[reference]
    joins = [place for place, (what, rest) in enumerate(lines) if what == "change" and not rest.endswith(" -")]
    return sum(what == "round" for what, _ in lines[joins[-1] :]) if joins else None


def run_one(plan, options, interpreter):
    """The row of a job, and a text for each fault."""
    job, running = job_of(plan, options, interpreter), None
    running = Running(options.horo, plan.resizes)
    try:
        outcome = survivors.run(job, options, running, options.limit)
    finally:
        running.end()
    told = Told(outcome.text)
    found = faults(plan, outcome, told, options.passes or plan.passes, interpreter)
    joins = [int(waited) for _, waited in JOINED.findall(outcome.text)]
    reference = told.reference(plan.size)
    row = {"jobs": 1, "deaths": told.counts["kills"], "joins": len(joins), "stops": told.counts["stops"]}
    row |= {"evicted": len(EVICTED.findall(outcome.text)), "resizes": running.resized, "wrong": int(bool(found))}
    row["rounds"] = sum(what == "round" for what, _ in told.logs.get(reference, ()))
    after = rounds_after_the_last_join(told, reference) if reference is not None else None
    if not found:
        return row, joins, after, None
    return row, joins, after, told_of(plan, job, outcome, found, options)


def told_of(plan, job, outcome, found, options):
    """The text of a job that is wrong, whose output goes into a file."""
    shown = job._replace(rank=(sys.executable, *job.rank[1:]))
    tail = [line for line in outcome.text.splitlines() if not re.match(r"\[\d+\] (take|round|mean|joined)", line)]
    log = os.path.join(tempfile.gettempdir(), f"learn-{plan.what.replace(' ', '-')}-{plan.number}.log")
    with open(log, "w", encoding="utf-8") as file:
        file.write(outcome.text)
    text = "\n".join("    " + line for line in tail[-40:])
    head = f"{plan.what} {plan.number}: {'; '.join(found)}\n    {survivors.command_line(shown, options)}\n"
    return f"{head}    all lines: {log}\n{text}"


def plans(options):
    ways = [way for way in options.ways if way != "device" or FAKE_CUDA.exists()]
    for number in range(options.first, options.first + options.runs):
        yield plan_for_bits(random.Random(f"{options.seed}/bits/{number}"), number, ways[number % len(ways)])
    number = options.first
    while True:
        yield plan_for_samples(random.Random(f"{options.seed}/samples/{number}"), number)
        number += 1


def run_all(options):
    interpreter = python()
    table, wrong, waits, afters, events = {}, [], [], [], 0
    for plan in plans(options):
        if plan.is_for_samples and events >= options.events:
            break
        row, joins, after, fault = run_one(plan, options, interpreter)
        waits += joins
        if plan.is_for_samples:
            events += events_of(row)
        elif after is not None:
            afters.append(after)
        total = table.setdefault(plan.what, collections.Counter())
        total.update(row)
        if fault:
            wrong.append(fault)
        if not options.json:
            lines = fault.partition("\n")[0] if fault else "right"
            print(f"{plan.what} {plan.number}: {dict(row)}: {lines}", flush=True)
        if len(wrong) == MOST_WRONG:
            break
    return {
        "table": {what: dict(row) for what, row in table.items()},
        "joins": len(waits),
        "events": events,
        "waited_ms_median": sorted(waits)[len(waits) // 2] if waits else None,
        "rounds_after_the_last_join": [min(afters), sorted(afters)[len(afters) // 2]] if afters else None,
        "wrong": wrong,
    }


def show(summary):
    columns = "jobs deaths joins stops evicted resizes rounds wrong".split()
    print(f"\n{'job':<16}" + "".join(f"{column:>9}" for column in columns))
    for what, row in summary["table"].items():
        print(f"{what:<16}" + "".join(f"{row[column]:>9}" for column in columns))
    after = summary["rounds_after_the_last_join"]
    print(
        f"{summary['joins']} joins, for which the others waited {summary['waited_ms_median']} ms (median); "
        f"{summary['events']} events in jobs for the samples"
        + (f"; rounds after the last join: at least {after[0]}, median {after[1]}" if after else "")
    )
