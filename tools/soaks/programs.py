"""tools/soak programs: random programs of several ranks over the world and three overlapping process sets: collectives,
messages, units, gradients and joins in a different order on each rank. Some calls are wrong: another shape, type, root
or operation, no peer, crossed waits, a rank that is not in the set. No program hangs; each call ends within its limit,
with the right values or with an error that names tensor and ranks.
"""

from . import proving


def add_arguments(parser):
    parser.add_argument("--programs", type=int, default=5_000, help="number of programs (default: 5000)")
    parser.add_argument(
        "--at-once", type=int, default=12, help="programs that run concurrently; they mostly wait (default: 12)"
    )


def run_all(options):
    arguments = ["programs", "--seed", options.seed, "--count", options.programs, "--at-once", options.at_once]
    code, lines = proving.run(arguments, deadline_s=300 + options.programs)
    ends = {what: int(number) for number, what in (line.split(maxsplit=1) for line in lines if line[:1].isdigit())}
    wrong = [line for line in lines if line.startswith("wrong: ")]
    longest = [line for line in lines if line.startswith("longest ")]
    return {"ends": ends, "longest": longest, "wrong": wrong or (lines[-5:] if code else [])}


def show(summary):
    for end, number in summary["ends"].items():
        print(f"{number:>9}  {end}")
    print(*summary["longest"])
