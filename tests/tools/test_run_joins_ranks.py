"""Ranks of the engine that are replaced, or started by horo resize: all have equal states at the end."""

import re
import subprocess

import pytest
from launching import DEADLINE_S, HORO, ROOT, clean_environment, horo

RANK = ROOT / "build/release/tests/horo/growing_rank"
LINE = re.compile(r"^\[(\d+)\] grown (\d+) hash (\w+) sum (\d+) members (\S+) ", re.MULTILINE)
STEPS, VALUES = 200, 1_000

pytestmark = pytest.mark.skipif(not RANK.exists(), reason="no build tree has growing_rank: tools/test release")


def start(ranks, options=(), kills=""):
    command = [HORO, "run", "-n", str(ranks), "--min-np", "1", "-v", *options, str(RANK), str(STEPS), str(VALUES)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    extra = {"TEST_PAUSE_MS": "10", **({"TEST_KILL": kills} if kills else {})}
    return subprocess.Popen(command, env=clean_environment(extra), **pipes)


def end_of(job):
    """The ranks that have come to the end, the members by step, and what horo run has printed."""
    output, errors = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 0, output + errors
    ends = LINE.findall(output)
    assert len({end[2:] for end in ends}) == 1, output + errors  # one state on all of them
    return sorted(int(end[0]) for end in ends), ends[0][4], errors


def test_a_rank_that_dies_is_replaced_and_its_successor_has_the_state_of_the_others():
    ranks, members, errors = end_of(start(3, kills="1:lane.reduced:5"))
    assert ranks == [0, 2, 3] and members.split(":")[-1] == f"{0b1101}+0+0", errors
    assert "rank 3 is started in the place of rank 1" in errors
    assert re.search(r"rank 3 has joined: [\d.]+ KiB from ranks 0, 2 in \d+ ms; the others waited \d+ ms", errors)


def test_a_successor_that_dies_before_it_has_the_state_hurts_no_other_rank():
    ranks, members, errors = end_of(start(3, kills="1:lane.reduced:5,3:start.connected:1"))
    assert ranks == [0, 2, 4] and members.split(":")[-1] == f"{0b10101}+0+0", errors
    assert "rank 4 is started in the place of rank 3" in errors


def test_a_job_gets_more_ranks_while_it_runs():
    job = start(2, options=("--max-np", "4"))
    answer = horo("resize", 4, job.pid)
    while "horo.elastic.State" in answer.stderr or "no job" in answer.stderr:  # it has not come to its loop
        answer = horo("resize", 4, job.pid)
    assert answer.returncode == 0, answer.stderr
    ranks, members, errors = end_of(job)
    assert ranks == [0, 1, 2, 3] and members.split(":")[-1] == f"{0b1111}+0+0", errors
