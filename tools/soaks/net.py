"""tools/soak net: two hosts train over a line (tools/relay) that is cut, cut in one direction or stalled at a random
moment, from start-up to shutdown. After a permanent strike every rank ends in time, with an error that names a rank of
the other host; a brief strike is only a pause. No rank hangs, and no process is left behind. The line's delay, rate and
loss vary too.
"""

import collections
import random
import re
import tempfile
import time

import hosts
from soaks.kill import SLACK_S, WORKER, Job, start_timeout_ms

BRIEF_EVERY = 5
BRIEF_S = 0.05, 0.5  # TCP retransmits lost data after about the same time again
JUDGING_S = 4.0  # beyond the deadline: 0.5 s for rank 0's decision, 1 s for the other ranks, 2.5 s of margin
GOOD = ["delay 0", "rate 0", "loss 0", "corrupt 0", "heal"]
LINES = [[], ["delay 1ms"], ["delay 10ms", "rate 1gbit"], ["delay 1ms", "rate 1gbit", "loss 0.1%"]]

# One strike: the number of ranks on each host, the line's orders, the order that strikes, its moment as a share of the
# job's run, and its length in seconds (0: permanent).
Strike = collections.namedtuple("Strike", "number on_each line what moment seconds")


def add_arguments(parser):
    parser.add_argument("--count", type=int, default=250, help="strikes; each fifth is brief (default: 250)")
    parser.add_argument("--deadline-ms", type=int, default=2000, help="HORO_DEADLINE_MS of the jobs (default: 2000)")
    parser.add_argument("--start-timeout-ms", type=int, default=6000, help="HORO_START_TIMEOUT_MS (default: 6000)")


def strikes(options):
    for number in range(options.count):
        chance = random.Random(f"{options.seed}/{number}")
        what = f"{chance.choice(['cut', 'stall'])} {chance.choice(['', 'a->b', 'b->a'])}".strip()
        is_brief = number % BRIEF_EVERY == BRIEF_EVERY - 1
        seconds = chance.uniform(*BRIEF_S) if is_brief else 0
        yield Strike(number, chance.choice([1, 1, 2]), chance.choice(LINES), what, chance.random(), seconds)


class Course:
    """The state that all strikes share: the two hosts, a folder, and the durations of undisturbed runs."""

    def __init__(self, pair, folder, options, env=None):
        self.pair, self.folder, self.options = pair, folder, options
        self.env = env  # environment variables of all jobs
        self.durations = {}

    def start(self, strike, duration_s=None):
        """Starts a job; duration_s: see start_timeout_ms()."""
        for order in [*GOOD, *strike.line]:
            self.pair.line.send(order)
        places = hosts.Places(self.pair, self.folder, (strike.on_each, strike.on_each))
        env = (self.env or {}) | {"HORO_START_TIMEOUT_MS": str(start_timeout_ms(self.options, duration_s))}
        return Job([WORKER, "light"], 2 * strike.on_each, self.options, env, places)

    def limit_s(self, duration_s):
        """The limit for the end of a job after a strike."""
        waits_ms = self.options.deadline_ms + start_timeout_ms(self.options, duration_s)
        return duration_s + waits_ms / 1000 + SLACK_S

    def duration(self, strike):
        """The duration of an undisturbed run in seconds."""
        which = strike.on_each, *strike.line
        if which not in self.durations:
            job = self.start(strike)
            try:
                late = job.wait(range(2 * strike.on_each), 120 + SLACK_S)
                if late or any(process.returncode != 0 for process in job.processes):
                    texts = "\n".join(job.said(rank)[1] for rank in range(2 * strike.on_each))
                    raise RuntimeError(f"{_say(strike)}: an undisturbed run failed:\n{texts}")
                self.durations[which] = time.monotonic() - job.began
            finally:
                job.end()
        return self.durations[which]

    def run(self, strike):
        """Runs one strike; returns a dict with the list "wrong"."""
        duration_s = self.duration(strike)
        job = self.start(strike, duration_s)
        try:
            job.wait_until(strike.moment, duration_s)
            self.pair.line.send(strike.what)
            struck = time.monotonic()
            if strike.seconds:
                time.sleep(strike.seconds)
                self.pair.line.send("heal")
            limit_s = self.limit_s(duration_s)
            late = job.wait(range(2 * strike.on_each), limit_s)
            wrong = [f"rank {rank} did not end within {limit_s:.0f} s: {job.said(rank)[1][-500:]}" for rank in late]
            result = self.judged(job, strike, struck, [rank for rank in range(2 * strike.on_each) if rank not in late])
            wrong += result.pop("wrong")
            wrong += [f"left behind: {what}" for what in job.leftovers(10)]
            return result | {"wrong": [f"strike {strike.number} ({_say(strike)}): {text}" for text in wrong]}
        finally:
            job.end()

    def judged(self, job, strike, struck, ended):
        wrong, named, seconds = [], 0, []
        said = {rank: job.said(rank) for rank in ended}
        is_ready = all("ready" in one and one["ready"]["at"] < struck for one, _ in said.values())
        for rank, (events, text) in said.items():
            if "done" in events:
                continue  # it had all data before the strike
            if "lost" not in events:
                wrong.append(f"rank {rank} reports neither a lost rank nor its end: {text[-1000:]}")
                continue
            named += 1
            seconds.append(events["lost"]["at"] - struck)
            if strike.seconds:
                wrong.append(f"rank {rank} failed after a brief strike: {events['lost']['text']}")
            elif not is_right(events["lost"], rank, strike.on_each):
                wrong.append(f"rank {rank} names rank {events['lost']['origin']}: {events['lost']['text']}")
        allowed_s = self.options.deadline_ms / 1000 + JUDGING_S
        slowest = round(max(seconds), 3) if seconds else None
        if is_ready and seconds and slowest > allowed_s:
            wrong.append(
                f"the last error was reported {slowest:.1f} s after the strike; the limit is {allowed_s:.1f} s"
            )
        return {"wrong": wrong, "ready": is_ready, "named": named, "ended": len(ended), "slowest_s": slowest}


def is_right(lost, rank, on_each):
    """Whether the error names a rank of the other host, or was sent by the other host and names a rank of this host."""
    origin = lost["origin"]
    if origin < 0:
        return False
    if origin // on_each != rank // on_each:
        return True
    seen = r"(?:no sign of life|its connection broke off) .* seen by rank (\d+)"
    judge = re.search(seen + r"|^rank (\d+): .* did not connect", lost["text"])
    return judge is not None and int(judge[1] or judge[2]) // on_each != origin // on_each


def _say(strike):
    line = ", ".join(strike.line) or "an unlimited line"
    length = f" for {strike.seconds:.2f} s" if strike.seconds else ""
    return f"{2 * strike.on_each} ranks, {line}: {strike.what}{length} at {strike.moment:.0%}"


def run_all(options):
    reason = hosts.missing(line=True)
    if reason:
        raise SystemExit(f"soak net: {reason}")
    rows, wrong = [], []
    with tempfile.TemporaryDirectory(prefix="horo_soak_") as folder, hosts.two_namespaces([], options.seed) as pair:
        course = Course(pair, folder, options)
        for strike in strikes(options):
            result = course.run(strike)
            wrong += result.pop("wrong")
            what = ("brief " if strike.seconds else "") + strike.what
            rows.append({"strike": _say(strike), "what": what} | result)
            if not options.json:
                print(f"{strike.number:4} {_say(strike)}: {_outcome(result)}", flush=True)
    return {"strikes": len(rows), "table": table(rows), "rows": rows, "wrong": wrong}


def _outcome(result):
    after = f", the last one after {result['slowest_s']:.2f} s" if result["named"] else ""
    return f"{result['named']} of {result['ended']} ranks report a lost rank{after}"


def table(rows):
    """The number of strikes and the outcomes by kind of strike."""
    lines = []
    for what in sorted({row["what"] for row in rows}):
        mine = [row for row in rows if row["what"] == what]
        times = [row["slowest_s"] for row in mine if row["ready"] and row["named"]]
        lines.append(
            {
                "what": what,
                "strikes": len(mine),
                "named": sum(row["named"] > 0 for row in mine),
                "done": sum(row["named"] == 0 for row in mine),
                "after_init": len(times),
                "slowest_s": max(times, default=None),
            }
        )
    return lines


def show(summary):
    print(f"\n{'strike':<18}{'strikes':>8}{'named':>7}{'done':>6}{'after init':>12}{'slowest':>10}")
    for row in summary["table"]:
        slowest = "" if row["slowest_s"] is None else f"{row['slowest_s']:.2f} s"
        counts = f"{row['strikes']:>8}{row['named']:>7}{row['done']:>6}{row['after_init']:>12}"
        print(f"{row['what']:<18}{counts}{slowest:>10}")
