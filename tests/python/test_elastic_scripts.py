"""Scripts of elastic_scripts/, as strangers write them around a State: a rank is killed and another one joins. All
ranks end with equal bits, or the script ends with an error that says what to change."""

import pathlib
import re

import pytest
import ranks
from test_elastic import TORCH_DEADLINE_S, run
from test_launchers import executable

PROGRAM = pathlib.Path(__file__).resolve().parent / "elastic_scripts/killed.py"


def job(script, victim=1, step=5, joins=1, code=0, env=()):
    words = [executable("horo"), "run", "-n", "3", "--min-np", "1", "--timeout", str(TORCH_DEADLINE_S)]
    words += [ranks.start.python(), str(PROGRAM), script, *map(str, (victim, step, joins))]
    return run(words, code, env)


SCRIPTS = "gan nested breaks metrics accumulates wrapped_later rescales sets_in_steps".split()


@pytest.mark.parametrize("script", SCRIPTS)
def test_all_ranks_have_equal_bits_when_a_rank_has_joined(script):
    output, errors = job(script, victim={"nested": 0}.get(script, 1))
    ends = re.findall(r"^\[(\d)\] end (.*)$", output, re.MULTILINE)
    states = [{end for rank, end in ends if rank == member} for member in "0123"]
    there = [one for one in states if one]
    assert len(there) == 3 and all(one == there[0] for one in there), output + errors
    assert any(end.endswith("joined 3") for end in there[0]), errors


def test_ranks_that_raise_are_replaced():
    output, errors = job("raises", victim=9, step=9, joins=2)
    ends = re.findall(r"^\[(\d)\] end (.*) joined", output, re.MULTILINE)
    assert {rank for rank, _ in ends} == {"2", "3", "4"} and len({end for _, end in ends}) == 1, output + errors
    assert "ValueError: bad sample" in errors and "KeyboardInterrupt" in errors


def test_broadcasts_at_the_top_of_the_function_end_the_rank_that_joins_alone():
    output, errors = job("broadcasts", step=30)
    assert "rank 3 has joined in the middle of a pass" in errors and "'broadcast_parameters/bias'" in errors, errors
    ends = re.findall(r"^\[\d\] end (.*) joined", output, re.MULTILINE)
    assert len(ends) >= 2 and len(set(ends)) == 1, output + errors
