"""The ends of the ranks of an elastic job: its exit code, its story, and what the others do (docs/elastic.md)."""

import signal

import pytest
from test_elastic import DEADLINE_S, command, lines_of, run

KILLED = 128 + signal.SIGKILL
TWO_LEFT = "epoch 1 has ranks 0, 2 as ranks 0, 1"
# Ways of the ranks; --min-np; exit code; the sizes that ranks have at their ends; what horo run says; what it does not.
ENDS = [
    # A rank that ends early: with another code than 0 it is lost, and does not count for --min-np.
    ("end | exit 3 | end", 2, 0, [2, 2], [f"rank 1 failed (exit code 3); {TWO_LEFT}"], ["failed first"]),
    ("end | exit no data | end", 2, 0, [2, 2], [f"rank 1 failed (exit code 1); {TWO_LEFT}"], []),
    ("end | exit 0 | end", 3, 0, [2, 2], [f"rank 1 left; {TWO_LEFT}"], ["failed"]),
    ("end | _exit 3 | end", 2, 0, [2, 2], [f"rank 1 died (exit code 3); {TWO_LEFT}"], []),
    ("end | raise no | end", 2, 0, [2, 2], ["ValueError: no", TWO_LEFT], []),
    ("end | killed-after-exit 0 | end", 2, 0, [2, 2], ["rank 1 failed (signal 9 (SIGKILL))"], []),
    ("end | before-init 3 | end", 2, 0, [2, 2], ["rank 1 died (exit code 3)"], []),
    ("end | slow-exit 3 | end", 1, 0, [2, 2], ["rank 1 left", "rank 1 failed (exit code 3)"], []),
    # Below --min-np the code is that of the first rank that failed.
    ("exit no data | exit no data | exit no data | end", 4, 1, [], ["rank 3 is left of 4"], ["epoch 1"]),
    ("end | exit 3 | end", 3, 3, [], ["ranks 0, 2 are left of 3", "failed first: exit code 3"], ["epoch 1"]),
    ("end | slow-exit 3 | end", 3, 3, [2, 2], ["rank 1 left", "failed first: exit code 3"], []),
    ("end | killed-after-exit 0 | end", 3, KILLED, [], ["failed first: signal 9"], []),
    ("end | exit 3 | later 4", 2, 3, [], ["rank 1 failed (exit code 3)", "rank 2 failed (exit code 4)"], []),
    ("later 4 | exit 3 | later 4", 1, 3, [], ["all 2 ranks that were left failed in the same way: exit code 4"], []),
    # At the end of the script.
    ("end | end-exit 3 | end", 1, 0, [3, 3, 3], ["rank 1 failed (exit code 3)"], []),
    ("end | end-exit 3 | end", 3, 3, [3, 3, 3], ["rank 1 failed (exit code 3)"], []),
    ("end-exit 3 | end-exit 3 | end-exit 3", 1, 3, [3, 3, 3], ["failed first: exit code 3"], []),
    ("exit 3 | exit 3 | exit 3", 1, 3, [], ["all 3 ranks failed in the same way: exit code 3"], ["epoch 1"]),
    ("before-init 3 | before-init 3", 1, 3, [], ["failed first: exit code 3"], []),
    ("end | end-atexit | end", 3, 0, [3, 3, 3], ["ZeroDivisionError"], ["failed"]),
    ("end | end-raise no | end", 1, 0, [3, 3, 3], ["ValueError: no"], ["failed first"]),
    # After shutdown() a rank has done its part, and its code is that of the job.
    ("end | shutdown-exit 3 | end", 3, 3, [2, 2], ["rank 1 left", "failed first: exit code 3"], []),
    ("end | end-shutdown-exit 3 | end", 1, 3, [3, 3, 3], ["failed first: exit code 3"], ["rank 1 failed"]),
    ("end-shutdown-exit 4 | end-shutdown-exit 4", 1, 4, [2, 2], ["failed first: exit code 4"], []),
    ("end | end-shutdown-kill | end", 1, KILLED, [3, 3, 3], ["failed first: signal 9"], []),
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end[0])
def test_the_exit_code_and_the_survivors_follow_from_the_ends(end):
    ways, least, code, sizes, said, not_said = end
    ways = ways.split(" | ")
    options = ("--min-np", str(least), "--park-timeout", "0.3")
    output, errors = run(command(len(ways), "elastic_exits", *ways, options=options, deadline=DEADLINE_S), code)
    ends = [line.split() for line in lines_of(output)]
    assert sorted(int(size) for _, size, _ in ends) == sizes, errors
    assert all(float(total) == int(size) for _, size, total in ends), output
    assert [text for text in said if text not in errors] == [], errors
    assert [text for text in not_said if text in errors] == [], errors
