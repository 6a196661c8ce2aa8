"""tools/soak survive --torch: jobs of survive_torch_worker.py in which ranks are killed at each fail point, or a moment
after it, for each rank of 2 to 4. Each fail point of a change of epoch follows a first death.
"""

import collections
import itertools
import random
import re
import sys
import time

from . import survivors

WORKER = str(survivors.ROOT / "tools/soaks/survive_torch_worker.py")
WAYS = "plain views small small_views groups prioritized two rounds accumulated scaled metrics sets".split()
PYTHON_S = 120  # more than a job needs to start and to end Python
LATER_US = 1500  # at most, for a death after a fail point
REACHED = {"lane": 60, "engine": 25}  # times that each rank reaches most of these points

Row = collections.namedtuple("Row", "point size rank is_later")


def add_arguments(parser):
    parser.add_argument("--torch", type=int, metavar="JOBS", help="only jobs of torch models")
    library = survivors.ROOT / "build/release/tests/horo/libhoro_kills.so"
    parser.add_argument("--library", default=str(library), help="libhoro.so with fail points, for --torch")


def rows(points, is_change):
    """Each point x size x rank x at the point or later."""
    for point in points:
        for size in (3, 4) if is_change(point) else (2, 3, 4):
            yield from (Row(point, size, *rest) for rest in itertools.product(range(size), (False, True)))


def job(number, points, is_change, options):
    """The rows come in a random order, each once before any comes again."""
    every = list(rows(points, is_change))
    random.Random(f"{options.seed}/torch/{number // len(every)}").shuffle(every)
    row = every[number % len(every)]
    chance = random.Random(f"{options.seed}/torch job/{number}")
    others = [rank for rank in range(row.size) if rank != row.rank]
    later = f"+{chance.randint(1, LATER_US)}" if row.is_later else ""
    kills = []
    if is_change(row.point):
        kills.append(f"{chance.choice(others)}:lane.reduced:{chance.randint(1, REACHED['lane'])}")
        count = 1
    else:
        count = chance.randint(1, REACHED.get(row.point.partition(".")[0], 1))
    kills.append(f"{row.rank}:{row.point}:{count}{later}")
    way = WAYS[number % len(WAYS)]
    rank = (sys.executable, WORKER, way, str(options.steps))
    more = (("HORO_LIBRARY", options.library), ("OMP_NUM_THREADS", "1"))
    return survivors.Job(row.point, row.size, way, options.steps, number, ",".join(kills), "", (), rank, more)


def run(one, options):
    """The outcome; its seconds are those between the start and the end of Python, which depend on other processes."""
    begin, end = time.monotonic(), None

    def on_line(line):
        nonlocal begin, end
        end = time.monotonic()
        if re.match(r"\[\d+\] imported$", line):
            begin = end

    outcome = survivors.run(one, options, on_line, PYTHON_S + options.limit)
    return outcome._replace(seconds=(end or time.monotonic()) - begin)


def hashed(outcome):
    """Freezes in which the inputs of a round were compared with those that were submitted."""
    return sum(map(int, re.findall(r"^\[\d+\] hashed (\d+),", outcome.text, re.M)))
