"""tools/soak survive --flat: ranks of elastic jobs are killed from outside, one or several at a time, until one or two
are left. After each change of epoch the descriptors, mappings, threads and resident memory of the others and of horo
run's guard are read. In jobs that began alike, processes in a later epoch hold no more than those in an earlier one
with the same number of members. Nothing is left after a job.
"""

import collections
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid

from . import survivors

SIZES = (8, 20)
AT_ONCE = (1, 4)  # kills, of a job: one process lives through many epochs, or through few
PROGRAMS = "plain views streams singles mixed".split()
UNSTEADY = "mixed"  # its thousands of failures in flight take and give back tens of MiB at any time
SETTLED_TICKS = 6  # of processor time of each process in an epoch, before it is read: 60 ms
WAIT_S = 60
KINDS = ("descriptors", "mappings", "threads", "resident KiB")
LIMITS = dict(zip(KINDS, (0.05, 0.25, 0.05, 64)))  # growth per epoch
ERRORS = 3  # standard errors by which a growth is above its limit, for a fault
LEAST_GROUPS = 6  # with different epochs, for a verdict
LEAST_KILLS = 300  # of a soak that has one

Reading = collections.namedtuple("Reading", "what group epoch values")


def add_arguments(parser):
    parser.add_argument("--flat", type=int, metavar="KILLS", help="only kills with a look at what the others hold")


def held(pid):
    """The values of KINDS; None if the process has ended."""
    process = pathlib.Path(f"/proc/{pid}")
    try:
        pages = int((process / "statm").read_text().split()[1])
        mappings = (process / "maps").read_text().count("\n")
        counts = [len(os.listdir(process / "fd")), mappings, len(os.listdir(process / "task"))]
    except OSError:
        return None
    return [*counts, pages * os.sysconf("SC_PAGE_SIZE") // 1024]


def ticks(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def parent(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class FlatJob:
    """A job of elastic_rank without an end, whose ranks are killed."""

    def __init__(self, number, options):
        chance = self.chance = random.Random(f"{options.seed}/flat/{number}")
        self.program, self.size, self.at_once = (chance.choice(some) for some in (PROGRAMS, SIZES, AT_ONCE))
        self.mark = f"flat-{uuid.uuid4().hex}"
        self.folder = tempfile.mkdtemp(prefix="soak-flat-")
        rank = [options.rank, self.program, "1000000000", str(number)]
        self.process = subprocess.Popen(
            [options.horo, "run", "-n", str(self.size), "--min-np", "1", "--grace", "0", "-v", *rank],
            env=os.environ
            | survivors.of_devices(options)
            | {"TEST_JOB": self.mark, "TMPDIR": self.folder, "XDG_RUNTIME_DIR": self.folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.pids, self.epoch, self.text = {}, 0, ""
        self._read_until(lambda: len(self.pids) == self.size)
        self.guard = parent(self.pids[0])

    def _read_until(self, is_reached):
        while not is_reached():
            line = self.process.stdout.readline()
            self.text += line
            if not line:
                raise RuntimeError(f"the job has ended:\n{self.text}")
            if started := re.match(r"horo run: rank (\d+): process (\d+)(?!.* (?:ended|is ending))", line):
                self.pids[int(started[1])] = int(started[2])
            if installed := re.match(r"horo run: epoch (\d+) runs on", line):
                self.epoch = int(installed[1])

    def kill(self, count):
        """Kills some ranks at once, and waits for the others to go on."""
        for victim in self.chance.sample(sorted(self.pids), count):
            os.kill(self.pids.pop(victim), signal.SIGKILL)
        before = self.epoch
        # Several deaths are one or more epochs; the last one has all of the others.
        members = "its one member" if len(self.pids) == 1 else f"all {len(self.pids)} members"
        self._read_until(lambda: self.epoch > before and self.text.rstrip().split(" runs on ")[-1].startswith(members))

    def readings(self):
        """What the processes hold after a time in the epoch."""
        begin, end = {pid: ticks(pid) for pid in self.pids.values()}, time.monotonic() + WAIT_S
        while any(ticks(pid) - before < SETTLED_TICKS for pid, before in begin.items()):
            if time.monotonic() > end:
                raise RuntimeError(f"a rank does not go on:\n{self.text}")
            time.sleep(0.02)
        group = (self.program, self.size, len(self.pids))
        for what, pids in (("rank", list(begin)), ("guard", [self.guard])):
            rows = [values for pid in pids if (values := held(pid))]
            yield Reading(what, group, self.epoch, [sum(column) / len(rows) for column in zip(*rows)])

    def end(self):
        """Ends the job; returns what it leaves."""
        self.process.send_signal(self.chance.choice([signal.SIGTERM, signal.SIGINT, signal.SIGKILL]))
        self.process.stdout.close()
        self.process.wait()
        end = time.monotonic() + 10
        while (alive := self._alive()) and time.monotonic() < end:
            time.sleep(0.02)
        sockets = [str(path) for path in pathlib.Path(self.folder, "horo").glob("*")]  # of horo status
        left = (
            [f"process {pid}" for pid in alive] + sockets + [name for name in os.listdir(self.folder) if name != "horo"]
        )
        shutil.rmtree(self.folder)
        return left

    def _alive(self):
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_of_job(pid)]

    def _is_of_job(self, pid):
        try:
            return self.mark.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False


def growth(readings, kind):
    """The mean growth of a value per epoch among the readings of a group, by least squares, and its standard error."""
    groups = collections.defaultdict(list)
    for reading in readings:
        groups[reading.group].append((reading.epoch, reading.values[kind]))
    pairs = []  # differences from the mean of the group
    for some in groups.values():
        middle = [sum(column) / len(some) for column in zip(*some)]
        pairs += [(epoch - middle[0], value - middle[1]) for epoch, value in some]
    spread = sum(epoch**2 for epoch, _ in pairs)
    if not spread:
        return 0.0, 0.0
    slope = sum(epoch * value for epoch, value in pairs) / spread
    rest = sum((value - slope * epoch) ** 2 for epoch, value in pairs) / max(len(pairs) - len(groups) - 1, 1)
    return slope, (rest / spread) ** 0.5


def compared(readings):
    """Of the groups of ranks, those that have readings of different epochs."""
    epochs = collections.defaultdict(set)
    for reading in readings:
        if reading.what == "rank":
            epochs[reading.group].add(reading.epoch)
    return [group for group, some in epochs.items() if len(some) > 1]


def of(readings, what, kind):
    """The readings that tell about this kind."""
    is_memory = kind == KINDS[-1]
    return [one for one in readings if one.what == what and not (is_memory and one.group[0] == UNSTEADY)]


def table(readings):
    """{(what, kind): growth per epoch and its standard error}"""
    return {
        (what, kind): growth(of(readings, what, kind), number)
        for what in ("rank", "guard")
        for number, kind in enumerate(KINDS)
    }


def faults(readings):
    if len(compared(readings)) < LEAST_GROUPS:
        return
    for (what, kind), (value, error) in table(readings).items():
        if value - ERRORS * error > LIMITS[kind]:
            yield f"{what}: {kind} grow by {value:.2f} per epoch; the limit is {LIMITS[kind]}"


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if "horo" in name}


def run_all(options):
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background ignores it, and so do its children
    readings, wrong, kills, jobs, before = [], [], 0, 0, shared_memory()
    while kills < options.flat:
        job = FlatJob(jobs, options)
        jobs += 1
        try:
            readings += job.readings()
            while len(job.pids) > job.chance.choice([1, 2]) and kills < options.flat:
                count = min(job.at_once, len(job.pids) - 1)
                job.kill(count)
                kills += count
                readings += job.readings()
        except RuntimeError as error:
            wrong.append(str(error))
        finally:
            wrong += [f"left by a job: {what}" for what in job.end()]
        if not options.json and jobs % 10 == 0:
            print(f"{kills} kills, {jobs} jobs, {len(readings)} readings", flush=True)
    wrong += [f"left in /dev/shm: {name}" for name in shared_memory() - before]
    wrong += faults(readings)
    if kills >= LEAST_KILLS and len(compared(readings)) < LEAST_GROUPS:
        wrong.append(f"only {len(compared(readings))} groups have readings of several epochs: no verdict")
    per_epoch = {f"{what}: {kind}": [round(one, 3) for one in pair] for (what, kind), pair in table(readings).items()}
    return {
        "kills": kills,
        "jobs": jobs,
        "readings": len(readings),
        "groups_compared": len(compared(readings)),
        "growth_per_epoch": per_epoch,
        "wrong": wrong,
    }


def show(summary):
    print(f"{summary['kills']} kills in {summary['jobs']} jobs, {summary['readings']} readings")
    print(f"{summary['groups_compared']} groups have readings of several epochs; a verdict needs {LEAST_GROUPS}")
    print(f"{'growth per epoch':<24}{'':>10}{'error':>10}")
    for what, (value, error) in summary["growth_per_epoch"].items():
        print(f"{what:<24}{value:>10.3f}{error:>10.3f}")
