"""tools/soak corrupt: from a random moment on, the line between two hosts (tools/relay) changes bytes and adapts the
TCP checksums. No rank may end with a wrong result: every job ends with an error that describes the detected change
(HORO_CRC), or without an error if no byte was changed. While the ranks connect, any error is accepted.
"""

import random
import re
import tempfile

import hosts
from soaks.net import Course, Strike

LINES = [[], ["delay 1ms"], ["delay 10ms", "rate 1gbit"]]  # no loss: a changed retransmission may be unused
FOUND = re.compile(r"checksum|magic|protocol", re.I)  # in the errors of frame readers


def add_arguments(parser):
    parser.add_argument("--count", type=int, default=100, help="jobs (default: 100)")
    parser.add_argument("--share", default="2%", help="of segments that are changed (default: 2%%)")
    parser.add_argument("--deadline-ms", type=int, default=4000, help="HORO_DEADLINE_MS of the jobs (default: 4000)")
    parser.add_argument("--start-timeout-ms", type=int, default=6000, help="HORO_START_TIMEOUT_MS (default: 6000)")


def jobs(options):
    for number in range(options.count):
        chance = random.Random(f"{options.seed}/{number}")
        what = f"corrupt {options.share} {chance.choice(['', 'a->b', 'b->a'])}".strip()
        yield Strike(number, chance.choice([1, 1, 2]), chance.choice(LINES), what, chance.random(), 0)


def changed(pair):
    return sum(one["corrupted"] for one in pair.line.counters().values())


def run(course, strike):
    """Runs one job; returns a dict: the number of changed segments, the outcome and the list "wrong"."""
    duration_s = course.duration(strike)
    before = changed(course.pair)
    job = course.start(strike, duration_s)
    among = range(2 * strike.on_each)
    try:
        job.wait_until(strike.moment, duration_s)
        course.pair.line.send(strike.what)
        limit_s = course.limit_s(duration_s)
        late = job.wait(among, limit_s)
        wrong = [f"rank {rank} did not end within {limit_s:.0f} s" for rank in late]
        count = changed(course.pair) - before
        said = [job.said(rank) for rank in among if rank not in late]
    finally:
        job.end()
    wrong += judged([events for events, _ in said], count)
    place = f"job {strike.number} ({2 * strike.on_each} ranks, {strike.what} at {strike.moment:.0%})"
    ended = "well" if all("done" in events for events, _ in said) else "with an error"
    return {"job": place, "changed": count, "ended": ended, "wrong": [f"{place}: {text}" for text in wrong]}


def judged(ranks, count):
    """The failures, given each rank's events and the number of changed segments."""
    errors = [text for text in (error_of(events) for events in ranks) if text is not None]
    wrong = [
        f"a wrong result, or an end without an error: {text}" for text in errors if not text or "AssertionError" in text
    ]
    if count and not errors:
        wrong.append(f"{count} segments were changed, and no rank reported an error")
    if errors and all("ready" in events for events in ranks) and not any(FOUND.search(text) for text in errors):
        wrong.append("no error describes the detected change: " + "; ".join(errors))
    return wrong


def error_of(events):
    """The text of the rank's error; None if it ended without one; empty if it reported neither."""
    if "done" in events:
        return None
    return next((events[name]["text"] for name in ("lost", "failed") if name in events), "")


def run_all(options):
    reason = hosts.missing(line=True)
    if reason:
        raise SystemExit(f"soak corrupt: {reason}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="horo_soak_") as folder, hosts.two_namespaces([], options.seed) as pair:
        course = Course(pair, folder, options, env={"HORO_CRC": "on"})  # with auto there is no CRC on the fastest lines
        for strike in jobs(options):
            rows.append(run(course, strike))
            if not options.json:
                print(f"{rows[-1]['job']}: {rows[-1]['changed']} changed, {rows[-1]['ended']}", flush=True)
    wrong = [text for row in rows for text in row.pop("wrong")]
    found = sum(row["ended"] != "well" for row in rows)
    changes = sum(row["changed"] for row in rows)
    return {"jobs": len(rows), "found": found, "changed": changes, "rows": rows, "wrong": wrong}


def show(summary):
    print(
        f"{summary['changed']} segments changed in {summary['jobs']} jobs; {summary['found']} jobs ended with an error"
    )
