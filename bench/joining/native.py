"""Jobs of tests/horo/growing_rank: one of three ranks is killed, and a process joins in its place.

In each step the ranks add up as many bytes as the state has, so a step takes longer with a larger state. The times of
the steps are those of the timelines (HORO_TIMELINE), whose clock is CLOCK_MONOTONIC.
"""

import itertools
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import threading
import typing

from joining import copies

RANKS, LEAST, VICTIM = 3, 2, 1
MIB = 1 << 20
PAUSE_MS = 5  # after each step
LIMIT_S = 120
SOON, SOON_STEPS, LATE_STEPS = 32, 80, 20  # MiB up to which steps are short; steps of a job below and above that
# The time at which a process is started, by its rank; growing_rank follows in the same process.
NOTE = 'date +%s%N >"$0/start.$HORO_RANK"; exec "$@"'


class Join(typing.NamedTuple):
    """What one job has shown, in us. step: the median of a step. pause: the step of the survivors in which
    the rank joins, that of the slower one. start: from
    exec of the rank that joins to the end of its first round. copy: a copy of as many bytes between two processes."""

    step: float
    pause: float
    start: float
    copy: float
    story: str


class NoJoin(Exception):
    """A job has ended without what is to be measured; the text has its output."""


def rounds_of(path):
    """[(end in us of the monotonic clock, epoch)] of the rounds in a timeline."""
    ends = []
    for line in path.read_text().splitlines():
        if '"all_reduce sums"' in line and line.rstrip(",").endswith("}"):
            event = json.loads(line.rstrip(","))
            ends.append((event["ts"] + event["dur"], event["args"]["epoch"]))
    return ends


def _offset_us(path):
    """Unix time minus monotonic time."""
    return int(re.search(r'"unix_minus_monotonic_us":(\d+)', path.read_text())[1])


def _run(options, folder, mib):
    """Runs a job to its end. Returns its lines."""
    steps = SOON_STEPS if mib <= SOON else LATE_STEPS
    command = [options.horo, "run", "-v", "-n", RANKS, "--min-np", LEAST, "sh", "-c", NOTE, folder]
    command += [options.rank, steps, mib * MIB // 8]
    own = {"TEST_KILL": f"{VICTIM}:lane.reduced:{steps // 4}", "TEST_PAUSE_MS": str(PAUSE_MS)}
    own["HORO_TIMELINE"] = f"{folder}/trace.json"
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    lines = []
    with subprocess.Popen([str(word) for word in command], env=os.environ | own, **pipes) as job:
        limit = threading.Timer(LIMIT_S, job.send_signal, (signal.SIGKILL,))
        limit.start()
        for line in job.stdout:
            lines.append(line)
        limit.cancel()
    text = "".join(lines)
    if job.returncode != 0 or " has joined: " not in text:
        raise NoJoin(f"exit code {job.returncode}\n{text}")
    return lines


def steps_of(ends):
    """[(begin, end, epoch before, epoch)] of the steps, each to the end of its round."""
    return [(a, b, before, epoch) for (a, before), (b, epoch) in itertools.pairwise(ends)]


def pause_of(ends, joined):
    """The step in which the state is given: from the last round before the epoch `joined` to its first one."""
    return next(b - a for a, b, _, epoch in steps_of(ends) if epoch == joined)


def join(options, mib):
    """One job: its Join. Raises NoJoin."""
    copy = copies.copy_us(mib * MIB)
    with tempfile.TemporaryDirectory(prefix="horo_join_") as folder:
        lines = _run(options, folder, mib)
        traces = {rank: pathlib.Path(folder) / f"trace.rank{rank}.json" for rank in range(1, RANKS + 1)}
        traces[0] = pathlib.Path(folder) / "trace.json"
        new = RANKS
        ends = {rank: rounds_of(path) for rank, path in traces.items() if path.exists()}
        if not ends.get(new):
            raise NoJoin("the rank that has joined has run no round")
        joined = ends[new][0][1]
        survivors = [ends[rank] for rank in range(RANKS) if rank != VICTIM]
        pause = max(pause_of(one, joined) for one in survivors)
        usual = [b - a for a, b, before, epoch in steps_of(survivors[0]) if before == epoch and epoch in (0, joined)]
        started_ns = int((pathlib.Path(folder) / f"start.{new}").read_text())
        start = ends[new][0][0] - (started_ns / 1000 - _offset_us(traces[new]))
        story = next(line.strip() for line in lines if " has joined: " in line)
        return Join(statistics.median(usual), pause, start, copy, story)
