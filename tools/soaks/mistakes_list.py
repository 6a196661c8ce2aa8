"""A table of mistakes: tools/soaks/mistakes.py draws from it, mistakes_worker.py makes them.

One rank, the culprit, makes a mistake; all other ranks make correct calls. Options are those of Spec, with the names of
the C ABI's numbers.
"""

import collections

# The others pass `right`, the culprit `wrong`; the error has `right_text` for the others, `wrong_text` for the culprit.
Disagreement = collections.namedtuple("Disagreement", "right wrong right_text wrong_text")
DISAGREEMENTS = {
    "shape": Disagreement({"shape": (4,)}, {"shape": (2, 3)}, "shape [4]", "shape [2, 3]"),
    "dtype": Disagreement({}, {"dtype": "FLOAT64"}, "float32", "float64"),
    "op": Disagreement({}, {"op": "MAX"}, "sum", "max"),
    "order": Disagreement({}, {"order": 1}, "order canonical", "order fast"),
    "prescale": Disagreement({}, {"prescale": 0.5}, "prescale 1", "prescale 0.5"),
    "postscale": Disagreement({"postscale": 2.0}, {"postscale": 4.0}, "postscale 2", "postscale 4"),
    "root": Disagreement({"kind": "BROADCAST"}, {"kind": "BROADCAST", "root": 1}, "root 0", "root 1"),
    "collective": Disagreement({}, {"kind": "BROADCAST"}, "all_reduce", "broadcast"),
    "rows": Disagreement(
        {"kind": "ALL_GATHER", "shape": (2, 3)}, {"kind": "ALL_GATHER", "shape": (3, 4)}, "shape [*, 3]", "shape [*, 4]"
    ),
    "unnamed shape": Disagreement({"name": None}, {"name": None, "shape": (5,)}, "shape [4]", "shape [5]"),
    "unnamed op": Disagreement({"name": None}, {"name": None, "op": "MIN"}, "sum", "min"),
    "gradient shape": Disagreement({}, {"shape": (3,)}, "shape [4]", "shape [3]"),
}

# The culprit's options and the error of its call. It then makes the correct call, and all ranks succeed.
REFUSED = {
    "null pointer": ({"address": 0}, "its input is a null pointer"),
    "negative dimension": ({"shape": (-4,)}, "a dimension is negative: -4"),
    "too large": ({"shape": (1 << 40, 1 << 40)}, "too many elements"),
    "too many dimensions": ({"shape": (1,) * 65}, "HORO_MAX_DIMS"),
    "long name": ({"name": "x" * 1025}, "HORO_MAX_NAME_BYTES"),
    "average of bool": ({"dtype": "BOOL", "op": "AVERAGE"}, "average is not defined for bool"),
    "no such root": ({"kind": "BROADCAST", "root": 99}, "root 99 is not a rank of this world"),
    "no such op": ({"op": 17}, "op 17 is not known"),
    "no such dtype": ({"dtype": 77}, "dtype 77 is not known"),
    "infinite scale": ({"prescale": float("inf")}, "prescale and postscale must be finite"),
    "scalar gathered": ({"kind": "ALL_GATHER", "shape": ()}, "needs at least one dimension"),
    "unnamed and null": ({"name": None, "address": 0}, "its input is a null pointer"),
    "twice in flight": ({}, "a tensor of that name is in flight already"),
}

# All ranks succeed, also the culprit if it waits.
HARMLESS = ["freed tensor", "dropped handle"]

# The others' call fails at HORO_STALL_LIMIT_MS; if unnamed, the culprit's late call fails too.
MISSING = ["missing", "missing unnamed", "missing gradient"]

# These mistakes end the job.
ENDINGS = ["shutdown", "end of program", "exception", "abort", "leaves in flight", "other setting"]

# Calls without a name are matched by order, and a gradient occurs once in a step: one of each in a round.
ALONE_IN_A_ROUND = {
    "unnamed": {"unnamed shape", "unnamed op", "unnamed and null", "missing unnamed"},
    "gradient": {"gradient shape", "missing gradient"},
}


def ranks_text(ranks):
    """ "rank 3", "ranks 0, 2-5": the format of horo's errors."""
    parts = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], rank]
        else:
            parts.append([rank, rank])
    words = [str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}-{b}" for a, b in parts]
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(words)
