"""Waiting for a slow rank is no error, for any time; ranks that wait for one another fail by name.

Run with a short HORO_DEADLOCK_MS.
"""

import os
import threading
import time

import arrays

import horo
import horo.numpy as hnp

SLOW_S = 4  # several times the limits


def fails(name):
    """Submits the tensor; returns the text of the error."""
    try:
        arrays.reduce(name)
    except horo.Mismatch as error:
        return str(error)
    raise AssertionError(f"{name} did not fail")


def expect(text, *parts):
    for part in parts:
        assert part in text, f"{part!r} is not in: {text}"


def busy():
    time.sleep(SLOW_S)


def a_slow_rank_fails_nothing():
    if horo.rank() == 1:
        busy()
    assert arrays.reduce("slow") == horo.size()


def a_rank_that_is_busy_after_an_asynchronous_call_fails_nothing():
    if horo.rank() == 1:
        early = hnp.allreduce_async(arrays.numpy.ones(3), name="early", op=hnp.Sum)
        busy()
    assert arrays.reduce("late") == horo.size()
    if horo.rank() != 1:
        early = hnp.allreduce_async(arrays.numpy.ones(3), name="early", op=hnp.Sum)
    assert hnp.synchronize(early)[0] == horo.size()


def ranks_that_wait_for_each_other_fail_with_both_call_sites():
    text = fails("for b" if horo.rank() else "for a")
    file = os.path.basename(__file__)
    expect(
        text,
        "This is a deadlock: ranks 0-2 wait for one another",
        "have waited for 1000 ms (HORO_DEADLOCK_MS)",
        "Rank 0 waits for 'for a' (" if horo.rank() else "Ranks 1, 2 wait for 'for b' (not submitted by rank 0)",
        ", which submitted it,",
        ", which did not,",
    )
    assert text.count(f"{file}:") >= 4, text
    assert arrays.reduce("after") == horo.size()


def a_thread_that_submits_later_keeps_its_rank_out_of_a_deadlock():
    """Each rank waits for a tensor that another thread of rank 1 submits only after the limit."""
    submitted = threading.Event()

    def other():
        arrays.reduce("of the thread")
        submitted.set()
        if horo.rank() == 1:
            busy()
            arrays.reduce("first")

    thread = threading.Thread(target=other)
    thread.start()
    submitted.wait(60)
    if horo.rank() == 1:
        assert arrays.reduce("second") == horo.size()
    else:
        assert arrays.reduce("first") == horo.size()
        assert arrays.reduce("second") == horo.size()
    thread.join()


def main():
    horo.init()
    a_slow_rank_fails_nothing()
    a_rank_that_is_busy_after_an_asynchronous_call_fails_nothing()
    ranks_that_wait_for_each_other_fail_with_both_call_sites()
    a_thread_that_submits_later_keeps_its_rank_out_of_a_deadlock()
    horo.shutdown()


main()
