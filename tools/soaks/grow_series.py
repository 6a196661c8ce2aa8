"""One job of tools/soak grow in which many ranks die and are replaced one after the other, while two processes stay."""

import collections
import pathlib
import random
import re
import subprocess

from . import grow, survivors

STEPS_OF_ONE = 160  # of the job, for each death: a process starts and joins meanwhile
RESIDENT_MIB = 16  # more of a process that stays, between the first look and the last one
FIRST = 3  # join after which the processes are looked at, and the last one
LEAST = 0.7  # of the processes that are started join; the others die before

PROCESS = re.compile(r"^horo run: rank (\d+): process (\d+)$")
JOB = re.compile(r"^horo run: job (\d+): ")
DIED = re.compile(r"^horo run: rank (\d+) died ")

Seen = collections.namedtuple("Seen", "descriptors threads mappings resident_mib")


def look_at(pid):
    """The resources of a process; None: it has ended."""
    folder = pathlib.Path("/proc", str(pid))
    try:
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        mappings = len((folder / "maps").read_text().splitlines())
        descriptors = len(list((folder / "fd").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Seen(descriptors, int(status["Threads"]), mappings, int(status["VmRSS"].split()[0]) >> 10)


class Watch:
    """Starts the lost places anew at once, as a user may, and looks at the processes that stay."""

    def __init__(self, horo, staying):
        self.horo, self.staying = horo, staying
        self.job, self.pids, self.joined, self.seen = None, {}, 0, []

    def on_line(self, line):
        if found := JOB.match(line):
            self.job = found[1]
        elif found := PROCESS.match(line):
            self.pids[int(found[1])] = int(found[2])
        elif DIED.match(line):
            subprocess.run([self.horo, "resize", "3", self.job], stdout=subprocess.DEVNULL, check=False)
        elif grow.JOINED.match(line):
            self.joined += 1
            self.seen.append([look_at(self.pids[rank]) for rank in self.staying])

    def faults(self):
        wrong = []
        for rank, first, last in zip(self.staying, self.seen[FIRST - 1], self.seen[-1]):
            if first is None or last is None:
                wrong.append(f"the process of rank {rank} has ended")
            elif last[:2] != first[:2] or last.mappings > first.mappings + 2:
                wrong.append(f"rank {rank} has {last}, and had {first} after {FIRST} joins")
            elif last.resident_mib > first.resident_mib + RESIDENT_MIB:
                wrong.append(f"rank {rank} has {last.resident_mib} MiB, and had {first.resident_mib}")
        return wrong


def run(options):
    """Returns (joins, faults, the longest step and border in ms) of a job with options.series deaths."""
    chance = random.Random(f"{options.seed}/grow-series")
    steps = STEPS_OF_ONE * (options.series + 2)
    deaths = [f"2:lane.reduced:{chance.randint(10, 40)}"]
    deaths += [f"{rank}:lane.reduced:{chance.randint(1, 40)}" for rank in range(3, 2 + options.series)]
    own = ("--restarts", "1000", "-v")
    rank = [options.rank, str(steps), "5000"]
    more = (("TEST_PAUSE_MS", str(grow.PAUSE_MS)), ("VALUES", "5000"))
    job = survivors.Job("series", 3, "", steps, 0, ",".join(deaths), "", own, rank, more)
    watch = Watch(options.horo, (0, 1))
    outcome = survivors.run(job, options, watch.on_line, kill_after_s=60 + 4 * options.series)
    wrong = grow.faults(job, outcome, 60 + 3 * options.series)
    if watch.joined < LEAST * options.series:
        wrong.append(f"only {watch.joined} joins")
    elif watch.joined > FIRST:
        wrong += watch.faults()
    times = {one.member: (one.step_ms, one.border_ms) for one in grow.ends_of(outcome.text)}
    if set(watch.staying) - set(times):
        wrong.append("a rank of the start has not come to its end")
    if wrong:
        wrong[0] += "\n    " + survivors.command_line(job, options)
    steps_and_borders = [times[rank] for rank in watch.staying if rank in times] or [(0, 0)]
    return watch.joined, wrong, tuple(map(max, zip(*steps_and_borders)))
