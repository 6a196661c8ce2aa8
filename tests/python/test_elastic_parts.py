"""Functions that consist of several collectives: after a death between two of them all ranks that are left repeat the
whole call, from the rank that has the root's number then."""

import pytest
from test_elastic import torch_job

# The call, its ranks, the victim, and how many collectives of the call it has started.
CASES = [
    ("parameters", "world", 1, 1),
    ("thing", "world", 1, 1),
    ("thing", "world", 1, "end"),
    ("thing", "world", 0, 1),
    ("thing", "set", 3, 1),
    ("state", "world", 1, 1),
    ("state", "world", 1, 5),
    ("state", "set", 0, 2),
    ("state", "world", 1, "end"),
    ("objects", "set", 0, 0),
    ("sparse", "world", 2, 1),
    ("thing", "apart", 0, 0),
    ("state", "apart", 0, 0),
]


def root(victim):
    """The rank at the start of the root, rank 1, after the death."""
    return [rank for rank in range(4) if rank != victim][1]


def others(victim):
    return "0123".replace(str(victim), "")


def expected(call, where, victim, started):
    """The results of the call, and of the call after it."""
    if where == "apart":  # the root stays, by its new number
        return 1, root(victim)
    if call in ("objects", "sparse"):
        return "0123" if started == "end" else others(victim), others(victim)
    return root(4 if started == "end" else victim), root(victim)


@pytest.mark.parametrize("call, where, victim, started", CASES)
def test_the_call_is_repeated_on_all_ranks_or_on_none(call, where, victim, started):
    lines, errors = torch_job(5 if where == "set" else 4, "elastic_parts", call, where, victim, started)
    found, after = expected(call, where, victim, started)
    assert sorted(lines) == [f"after {after} 3"] * 3 + [f"found {found}"] * (4 if started == "end" else 3), errors
