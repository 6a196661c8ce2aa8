"""tools/soak grow: its judge. A short run of it is a test of its own (tests/horo/CMakeLists.txt)."""

import importlib
import sys

import pytest
from launching import ROOT


@pytest.fixture(scope="module")
def grow():
    sys.path.insert(0, str(ROOT / "tools"))
    yield importlib.import_module("soaks.grow")
    sys.path.pop(0)


LIMIT_S = 25


def line(member, total, hash_of_state="ab", members="0:3+0+0,20:5+0+0"):
    return f"[{member}] grown {member} hash {hash_of_state} sum {total} members {members} step 3 ms border 4 ms"


def judged(grow, text, code=0, seconds=2):
    job = grow.survivors.Job("a", 2, "", grow.STEPS, 0, "", "", (), ["rank"], (("VALUES", "7"),))
    return grow.faults(job, grow.survivors.Outcome(code, text, seconds), LIMIT_S)


def test_the_judge_of_grown_jobs(grow):
    total = grow.sum_of("0:3+0+0,20:5+0+0", grow.STEPS, 7)
    ends = [line(0, total), line(2, total)]
    assert judged(grow, "\n".join(ends)) == []
    assert judged(grow, "\n".join(ends), seconds=26) == ["the job took 26.0 s"]
    assert judged(grow, "\n".join(ends), code=1) == ["exit code 1"]
    assert judged(grow, "") == ["no rank has come to its end"]
    assert judged(grow, ends[0]) == ["ranks [2] of the last step print no end"]
    assert judged(grow, f"{ends[0]}\n[2] fired 2:lane.data:1") == []
    assert judged(grow, f"{ends[0]}\n{line(2, total, 'cd')}") == ["the ranks have different states"]
    wrong = f"{line(0, total + 1)}\n{line(2, total + 1)}"
    assert judged(grow, wrong) == ["the state is not that of the oracle"]
    dead = "[0] fired 0:lane.data:1\n[1] fired 1:lane.data:1"
    assert judged(grow, dead, code=137) == []
    assert judged(grow, dead) == ["exit code 0 of a job whose state is lost"]


def test_the_sum_of_a_state_is_that_of_its_values(grow):
    values = 200
    state = [0] * values
    for step, ids in enumerate(grow.members_of("0:3+0+0,100:0+4+0", grow.STEPS)):
        assert ids == ([0, 1] if step < 100 else [52])
        for member in ids:
            for place in range(values):
                state[place] += (member * 31 + step * 17 + place) % 97
    expected = sum(value * (place % 97 + 1) for place, value in enumerate(state))
    assert grow.sum_of("0:3+0+0,100:0+4+0", grow.STEPS, values) == expected
