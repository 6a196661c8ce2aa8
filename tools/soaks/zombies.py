"""Jobs in which a rank stops itself with SIGSTOP at a fail point, is evicted, and continues while the others run."""

import os
import random
import re
import signal

from . import survivors

# Places in a step where a member may hold or have sent part of a result.
POINTS = "lane.data lane.reduced lane.complete lane.committed lane.delivered engine.submitted engine.report".split()
EVICT_AFTER_S = 0.3
STEPS = 60  # of which the others run most after the eviction
PROGRAMS = "plain views units streams rounds singles mixed".split()


def job(number, options):
    chance = random.Random(f"{options.seed}/zombie/{number}")
    size = chance.choice([2, 3, 4])
    point = POINTS[number % len(POINTS)]
    stops = f"{chance.randrange(size)}:{point}:{chance.randint(1, 30)}"
    own = ("--evict-after", str(EVICT_AFTER_S), "-v")
    return survivors.Job("zombie", size, chance.choice(PROGRAMS), STEPS, number, "", stops, own)


class Waker:
    """Continues the stopped rank when the others run without it; it reads the lines of the job."""

    def __init__(self):
        self.pids, self.evicted = {}, None

    def on_line(self, line):
        started = re.match(r"horo run: rank (\d+): process (\d+)", line)
        if started:
            self.pids[int(started[1])] = int(started[2])
        evicted = re.match(r"horo run: rank (\d+) is evicted", line)
        if evicted:
            self.evicted = int(evicted[1])
        if self.evicted is not None and re.match(r"horo run: epoch \d+ runs on", line):
            try:
                os.kill(self.pids[self.evicted], signal.SIGCONT)
            except ProcessLookupError:
                pass  # the others have ended, and so horo run has killed it


def run(job, options):
    """Returns the outcome, and what is wrong with the end of the zombie."""
    waker = Waker()
    outcome = survivors.run(job, options, waker.on_line)
    if not survivors.fired(outcome):
        return outcome, []
    wrong = [f"exit code {outcome.code}"] * (outcome.code != 0)
    zombie = int(job.stops.partition(":")[0])
    if waker.evicted != zombie:
        return outcome, [*wrong, f"rank {zombie} was stopped and not evicted"]
    said = re.findall(rf"^\[{zombie}\] elastic_rank: (.*)", outcome.text, re.M)
    if len(said) != 1 or f"rank {zombie} was evicted" not in said[0]:
        wrong.append(f"the evicted rank {zombie} ends with {said}")
    if any(int(line[0]) == zombie for line in survivors.LINE.findall(outcome.text)):
        wrong.append(f"the evicted rank {zombie} prints results")
    return outcome, wrong
