"""Where the time of the steps of this rank goes: docs/scaling.md."""

import ctypes

from horo import _default, _native
from horo._marks import marks
from horo._native import quick

BARS = {name[4:].lower(): number for name, number in vars(_native).items() if name.startswith("BAR_")}
FIGURES = ("hidden_transfer_ns", "hidden_copies_ns", "gc_ns", "cpu_ns", "run_queue_ns", "switches", "samples", "work")
NOTES = (
    (_native.STEP_ESTIMATED_WAIT, "estimated_wait"),
    (_native.STEP_TOO_MANY_WAITS, "too_many_waits"),
    (_native.STEP_JOBS_FORGOTTEN, "jobs_forgotten"),
    (_native.STEP_DEVICE_TIME, "device_time"),
    (_native.STEP_NO_DEVICE_TIME, "no_device_time"),
)
MOST_STEPS = 1024


def _known(value):
    return None if value < 0 else value


def _as_dict(step, rank):
    bars = {bar: step.bars_ns[i] if step.known >> i & 1 else None for bar, i in BARS.items()}
    figures = {name.removesuffix("_ns"): _known(getattr(step, name)) for name in FIGURES}
    late = {one: step.late_ns[i] for i, one in enumerate(step.late_ranks) if one >= 0}
    return {
        "rank": rank,
        "step": step.number,
        "stream": step.stream,
        "epoch": step.epoch,
        "begin": step.begin_ns,
        "time": step.time_ns,
        "bars": bars,
        **figures,
        "late": late,
        "notes": [note for flag, note in NOTES if step.flags & flag],
    }


def last_steps(count=MOST_STEPS):
    """The last steps of this rank, at most 1,024, the oldest first; see last_step()."""
    session = _default.session()
    count = max(0, min(int(count), MOST_STEPS))
    steps = (_native.Step * count)()
    if count == 0:
        return []
    steps[0].struct_bytes = ctypes.sizeof(_native.Step)
    found = quick.horo_get_steps(session.pointer, steps, count)
    if found < 0:
        session.fail(found)
    return [_as_dict(step, session.topology.rank) for step in steps[:found]]


def last_step():
    """Where the time of this rank's last step went, as a dict; None: no step has ended, or HORO_ACCOUNTING=off.

    All times are integers in nanoseconds. "bars" add up to "time"; None: not known, its time is part of "between".
    "late" has this rank's skew by the rank that it waited for. The kernel is asked for "cpu", "run_queue" and
    "switches" every 10 ms at most: a step has those of all steps since the last one that has them, or None. So that of
    a window is the sum of what is known. docs/scaling.md has all words. Any thread; never blocks.
    """
    steps = last_steps(1)
    return steps[0] if steps else None


def step_end():
    """A step of a script without DistributedOptimizer and torch.distributed has ended, on the calling thread. Never
    blocks. Bars that need marks are not known, but for the input of loaders in horo.input()."""
    session = _default.session()
    session.step_end()
    marks.uses_batch()
    marks.end_step(session)
