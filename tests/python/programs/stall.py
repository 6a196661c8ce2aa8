"""Rank 1 does not submit a tensor: the error names it and shows the stacks of all ranks, and all ranks continue.

The first argument is a folder in which ranks create files to signal progress to each other.
"""

import inspect
import os
import sys
import time

import arrays

import horo

FOLDER = sys.argv[1]
WAIT_S = 180


def mark(name):
    open(os.path.join(FOLDER, f"{name}.{horo.rank()}"), "w").close()


def evaluate(name, ranks):
    """Waits, outside horo, until these ranks have written their marks."""
    end = time.monotonic() + WAIT_S
    while not all(os.path.exists(os.path.join(FOLDER, f"{name}.{rank}")) for rank in ranks):
        assert time.monotonic() < end, f"no mark {name} of {ranks}"
        time.sleep(0.01)


def fails(name):
    """Submits the tensor; returns the text of the error."""
    try:
        arrays.reduce(name)
    except horo.Mismatch as error:
        return str(error)
    raise AssertionError(f"{name} did not fail")


def line_of(function, code):
    """file:line of the function's line that contains this code."""
    lines, first = inspect.getsourcelines(function)
    return f"{os.path.basename(__file__)}:{first + next(i for i, line in enumerate(lines) if code in line)}"


def waits_alone():
    text = fails("lonely")
    mark("lonely")
    return text


def expect(text, *parts):
    for part in parts:
        assert part in text, f"{part!r} is not in: {text}"


def a_missing_rank_is_named_and_both_sides_are_shown():
    if horo.rank() == 1:
        evaluate("lonely", [0, 2])
    else:
        text = waits_alone()
        missing, waiting = text.split("rank 1, which did not, is here:")[1], text.split("rank 1, which did not")[0]
        expect(text, "'lonely'", "submitted by ranks 0, 2, but not by rank 1 within 3000 ms (HORO_STALL_LIMIT_MS)")
        expect(text, "Rank 1 waits for no other tensor.")
        expect(waiting, "ranks 0, 2, which submitted it, are here:", line_of(fails, "arrays.reduce(name)") + " fails")
        expect(waiting, line_of(waits_alone, "fails(") + " waits_alone")
        expect(missing, line_of(a_missing_rank_is_named_and_both_sides_are_shown, "evaluate("))
        assert "_session.py" not in text and "threading.py" not in text, text
    assert arrays.reduce("after") == horo.size()


def ranks_that_wait_for_each_other_are_reported():
    text = fails("for b" if horo.rank() else "for a")
    others = "Rank 0 waits for 'for a' (" if horo.rank() else "Ranks 1, 2 wait for 'for b' (not submitted by rank 0)"
    expect(text, others)
    assert arrays.reduce("after") == horo.size()


def a_call_without_a_name_fails_on_the_missing_rank_too():
    if horo.rank() == 1:
        evaluate("unnamed", [0, 2])
    text = fails(None)
    mark("unnamed")
    expect(text, "'all_reduce#", "such calls are matched by their order", "not by rank 1 within")
    for value in (1, 2, 3):
        assert arrays.reduce(None, value) == value * horo.size()


def main():
    horo.init()
    a_missing_rank_is_named_and_both_sides_are_shown()
    a_call_without_a_name_fails_on_the_missing_rank_too()
    ranks_that_wait_for_each_other_are_reported()
    horo.shutdown()


main()
