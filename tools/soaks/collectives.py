"""tools/soak collectives: random collectives (kind, algorithm, type, operation, counts, members, hosts, alignment, in
place or not, several process sets at the same time, within a process, over TCP and over shared memory) are compared
with an oracle that shares no code with them. A failing case is minimized and printed with its seed.
"""

from . import proving


def add_arguments(parser):
    parser.add_argument("--cases", type=int, default=10_000, help="collectives to run (default: 10000)")


def run_all(options):
    arguments = ["cases", "--seed", options.seed, "--jobs", options.cases]
    code, lines = proving.run(arguments, deadline_s=120 + options.cases // 10)
    rows = [line.split(maxsplit=1) for line in lines if line[:1].isdigit()]
    ran = {what: int(number) for number, what in rows}
    others = [line for line in lines if not line[:1].isdigit()]
    return {"ran": ran, "last": others[-1:], "wrong": ["\n".join(others)] if code else []}


def show(summary):
    for what, number in summary["ran"].items():
        print(f"{number:>8}  {what}")
    print(*summary["last"])
