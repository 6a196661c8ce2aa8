"""tools/soak kill: ranks are killed or stopped at random moments, from start-up to shutdown. All other ranks must end
in time with an error that names that rank, and leave nothing behind: no process, listening socket or file.
"""

import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import ranks

WORKER = str(pathlib.Path(__file__).resolve().parent / "kill_worker.py")
SIGNALS = [signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP]
AT_ONCE_S = 1.0  # from a kill after init to the error on all other ranks; after a SIGSTOP, from the deadline on
STARTING = 0.4  # the share of a run in which ranks start up
SLACK_S = 30  # beyond the limits of the settings, for a busy machine
DIGITS_EVERY = 10
UNDISTURBED_MS = 120_000  # the start timeout of undisturbed runs

# One kill: the ranks' program, their number, the victim, the signal, and its moment as a share of the job's run.
Kill = collections.namedtuple("Kill", "number what size victim signal moment")


def add_arguments(parser):
    parser.add_argument(
        "--count", type=int, default=100, help="number of kills; every tenth in digits.py (default: 100)"
    )
    parser.add_argument("--no-digits", action="store_true", help="only workers that do not need torch")
    parser.add_argument("--deadline-ms", type=int, default=3000, help="HORO_DEADLINE_MS of the jobs (default: 3000)")
    parser.add_argument("--start-timeout-ms", type=int, default=12000, help="HORO_START_TIMEOUT_MS (default: 12000)")


def kills(options):
    for number in range(options.count):
        chance = random.Random(f"{options.seed}/{number}")
        digits = not options.no_digits and number % DIGITS_EVERY == DIGITS_EVERY - 1
        what = "digits" if digits else chance.choice(["light", "light", "forks", "clones"])
        size = 2 if digits else chance.choice([2, 3, 4])
        yield Kill(number, what, size, chance.randrange(size), SIGNALS[number % len(SIGNALS)], chance.random())


def start_timeout_ms(options, duration_s=None):
    """HORO_START_TIMEOUT_MS of a job: that of the options, or longer on a slow machine.

    duration_s: the duration of an undisturbed run; None for that run itself."""
    return UNDISTURBED_MS if duration_s is None else max(options.start_timeout_ms, round(2000 * duration_s))


class Job:
    """Ranks as processes, each the leader of a separate session, and a folder for the files that they create."""

    def __init__(self, command, size, options, env=None, places=None):
        """env: more variables of the ranks. places: the placement of the ranks, an object with the methods of
        ranks.ThisHost; None: this host."""
        places = places or ranks.ThisHost()
        self.address = places.address
        self.folder = tempfile.mkdtemp(prefix="horo_soak_")
        self.outputs = [open(os.path.join(self.folder, f"output{rank}"), "wb") for rank in range(size)]
        self.reports_steps = "digits" not in command
        own = os.path.join(self.folder, "tmp")
        os.mkdir(own)
        extra = {
            "HORO_DEADLINE_MS": str(options.deadline_ms),
            "HORO_START_TIMEOUT_MS": str(options.start_timeout_ms),
            "TMPDIR": own,
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(self.folder, "torch"),  # torch does not remove it
        }
        self.began = time.monotonic()
        self.processes = []
        try:
            for rank in range(size):
                self.processes.append(self._start(rank, size, command, places, extra | (env or {})))
        except BaseException:  # also SystemExit by SIGTERM
            self.end()
            raise

    def _start(self, rank, size, command, places, env):
        return subprocess.Popen(
            [*places.prefix(rank), sys.executable, *command],
            env=places.environment(rank, size) | env,
            stdin=subprocess.DEVNULL,
            stdout=self.outputs[rank],
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self, among, seconds):
        """Waits for the ranks of `among`; returns those that have not ended in time."""
        end = time.monotonic() + seconds
        late = []
        for rank in among:
            try:
                self.processes[rank].wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(rank)
        return late

    def wait_until(self, moment, duration_s):
        """Waits until a share of the job's run: of duration_s during the start-up, of rank 0's steps afterwards.

        duration_s is the duration of an undisturbed run. digits.py reports no steps; there the share is of duration_s.
        """
        if moment < STARTING or not self.reports_steps:
            return time.sleep(moment * duration_s)
        share = (moment - STARTING) / (1 - STARTING)
        end = time.monotonic() + 120 + SLACK_S
        while self.processes[0].poll() is None and time.monotonic() < end:
            if self.said(0)[0].get("step", {"done": -1})["done"] >= share:
                return
            time.sleep(0.002)

    def said(self, rank):
        """A rank's output so far: the JSON lines by event, and the whole text."""
        text = pathlib.Path(self.outputs[rank].name).read_text(errors="replace")
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if re.match(r'{"event".*}\n', line)]
        return {line["event"]: line for line in lines}, text

    def leftovers(self, seconds):
        """What the ranks left behind: processes of their sessions (after some seconds), a listener, files."""
        end = time.monotonic() + seconds
        alive = self._alive()
        while alive and time.monotonic() < end:
            time.sleep(0.05)
            alive = self._alive()
        found = [f"processes of session {pid}" for pid in alive]
        found += [f"a listener at {self.address}"] * _is_listening(self.address)
        found += os.listdir(os.path.join(self.folder, "tmp"))
        return found

    def _alive(self):
        return [process.pid for process in self.processes if process.poll() is None or _has_group(process.pid)]

    def end(self):
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        for output in self.outputs:
            output.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _has_group(pid):
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _is_listening(address):
    port = f":{int(address.rsplit(':')[-1]):04X}"
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(port) and row[3] == "0A" for row in rows)


def shared_memory():
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


def undisturbed(what, size, options):
    """The duration of an undisturbed run in seconds."""
    job = Job([WORKER, what], size, options, {"HORO_START_TIMEOUT_MS": str(UNDISTURBED_MS)})
    try:
        late = job.wait(range(size), 120 + SLACK_S)
        if late or any(process.returncode != 0 for process in job.processes):
            texts = "\n".join(job.said(rank)[1] for rank in range(size))
            raise RuntimeError(f"{what} on {size} ranks failed in an undisturbed run:\n{texts}")
        return time.monotonic() - job.began
    finally:
        job.end()


def run(kill, duration_s, options):
    """Makes one kill; returns a dict with the list "wrong"."""
    start_ms = start_timeout_ms(options, duration_s)
    job = Job([WORKER, kill.what], kill.size, options, {"HORO_START_TIMEOUT_MS": str(start_ms)})
    try:
        job.wait_until(kill.moment, duration_s)
        job.processes[kill.victim].send_signal(kill.signal)
        struck = time.monotonic()
        others = [rank for rank in range(kill.size) if rank != kill.victim]
        limit_s = (options.deadline_ms + start_ms) / 1000 + SLACK_S
        if kill.what == "digits":
            limit_s += duration_s
        late = job.wait(others, limit_s)
        wrong = [f"rank {rank} did not end within {limit_s:.0f} s: {job.said(rank)[1][-500:]}" for rank in late]
        if kill.signal == signal.SIGSTOP:
            wrong += _continued(job, kill, limit_s)
        result = _judged(job, kill, [rank for rank in others if rank not in late], struck, options)
        wrong += result.pop("wrong")
        wrong += [f"left behind: {what}" for what in job.leftovers(10)]
        return result | {"wrong": [f"kill {kill.number} ({_say(kill)}): {text}" for text in wrong]}
    finally:
        job.end()


def _continued(job, kill, limit_s):
    """Continues a stopped rank, which must end too."""
    job.processes[kill.victim].send_signal(signal.SIGCONT)
    if job.wait([kill.victim], limit_s):
        return [f"the stopped rank {kill.victim} did not end after SIGCONT: {job.said(kill.victim)[1][-500:]}"]
    said, text = job.said(kill.victim)
    return [] if "lost" in said or "done" in said else [f"the stopped rank {kill.victim} ended with: {text[-500:]}"]


def _judged(job, kill, others, struck, options):
    """Checks the ranks that the others report, and the time from the signal to the report."""
    victim, _ = job.said(kill.victim)
    is_ready = "ready" in victim and victim["ready"]["at"] < struck and kill.what != "digits"
    wrong, named, seconds = [], 0, []
    for rank in others:
        said, text = job.said(rank)
        if "done" in said:
            continue  # it had all data of the victim
        if "lost" not in said:
            wrong.append(f"rank {rank} reports neither a lost rank nor its end: {text[-1000:]}")
        elif said["lost"]["origin"] != kill.victim:
            wrong.append(f"rank {rank} names rank {said['lost']['origin']}: {said['lost']['text']}")
        else:
            named += 1
            seconds.append(said["lost"]["at"] - struck)
    allowed = AT_ONCE_S + (options.deadline_ms / 1000 if kill.signal == signal.SIGSTOP else 0)
    at_once = bool(seconds) and max(seconds) <= allowed
    ended = "named" if named else "done"
    slowest = round(max(seconds), 3) if seconds else None
    return {"wrong": wrong, "ended": ended, "ready": is_ready, "at_once": at_once, "slowest_s": slowest}


def _say(kill):
    return f"{kill.what}, {kill.size} ranks, {kill.signal.name} to rank {kill.victim} at {kill.moment:.0%}"


def run_all(options):
    durations, rows, wrong = {}, [], []
    before = shared_memory()
    for kill in kills(options):
        key = kill.what, kill.size
        if key not in durations:
            durations[key] = undisturbed(*key, options)
        result = run(kill, durations[key], options)
        wrong += result.pop("wrong")
        rows.append({"kill": _say(kill), "what": kill.what, "signal": kill.signal.name} | result)
        if not options.json:
            print(f"{kill.number:4} {rows[-1]['kill']}: {result['ended']} {result['slowest_s'] or ''}", flush=True)
    left = sorted(name for name in shared_memory() - before if "horo" in name)
    wrong += [f"left in /dev/shm: {name}" for name in left]
    return {"kills": len(rows), "table": table(rows), "rows": rows, "wrong": wrong}


def table(rows):
    """The number of kills and the outcomes by worker and signal."""
    lines = []
    for key in sorted({(row["what"], row["signal"]) for row in rows}):
        mine = [row for row in rows if (row["what"], row["signal"]) == key]
        ready = [row for row in mine if row["ready"] and row["ended"] == "named"]
        lines.append(
            {
                "what": key[0],
                "signal": key[1],
                "kills": len(mine),
                "named": sum(row["ended"] == "named" for row in mine),
                "done": sum(row["ended"] == "done" for row in mine),
                "after_init": len(ready),
                "at_once": sum(row["at_once"] for row in ready),
                "slowest_s": max((row["slowest_s"] for row in ready), default=None),
            }
        )
    return lines


def show(summary):
    heads = f"{'kills':>6}{'named':>7}{'done':>6}{'after init':>12}{'at once':>9}{'slowest':>9}"
    print(f"\n{'worker':<8}{'signal':<9}{heads}")
    for row in summary["table"]:
        slowest = "" if row["slowest_s"] is None else f"{row['slowest_s']:.2f} s"
        print(
            f"{row['what']:<8}{row['signal']:<9}{row['kills']:>6}{row['named']:>7}{row['done']:>6}"
            f"{row['after_init']:>12}{row['at_once']:>9}{slowest:>9}"
        )
    named = [row for row in summary["rows"] if row["ended"] == "named" and row["ready"]]
    at_once = sum(row["at_once"] for row in named)
    within = f"within {AT_ONCE_S:.0f} s (stopped ranks: after the deadline)"
    print(f"after init, {at_once} of {len(named)} victims were named by all others {within}")
