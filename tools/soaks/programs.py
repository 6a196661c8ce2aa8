"""tools/soak programs: random programs of several ranks over the world and three overlapping process sets: collectives,
messages, units, gradients and joins in an order of each rank's own, some of them wrong (another shape, type, root or
operation, nobody home, crossed waits, a rank outside of the set). None hangs; each call ends with the right values, or
in a message that names tensor and ranks, within its limit.
"""

from . import proving


def add_arguments(parser):
    parser.add_argument("--programs", type=int, default=5_000, help="to run (default: 5000)")
    parser.add_argument("--at-once", type=int, default=12, help="most of their time they wait (default: 12)")


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
