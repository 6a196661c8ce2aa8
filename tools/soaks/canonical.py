"""tools/soak canonical: the same values, summed by every canonical algorithm, within a process, over TCP and over
shared memory, in segments of several sizes, from buffers at several offsets, in place and not, repeatedly, have one
hash for each number of ranks and type. Algorithms that are not canonical are shown too: their hashes differ, which
shows that the test can fail.
"""

from . import proving

DEADLINE_S = 1800


def add_arguments(parser):
    del parser  # no options


def run_all(options):
    del options
    code, lines = proving.run(["bits"], DEADLINE_S)
    wrong = [line for line in lines if line.startswith("wrong: ")]
    table = [line for line in lines if line not in wrong]
    return {"table": table, "wrong": wrong or (table[-1:] if code else [])}


def show(summary):
    print(*summary["table"], sep="\n")
