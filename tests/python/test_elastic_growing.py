"""horo.elastic.State: ranks are lost and join, all have equal bits, and each sample is used once per pass."""

import ast
import re

import pytest
import ranks
from test_elastic import TORCH_DEADLINE_S, command, run

SAMPLES, PASSES = 53, 3
DEATHS = ("1:2:before", "3:9:after", "2:1:evaluation")


def test_each_sample_counts_once_per_pass_when_ranks_die():
    words = command(4, "elastic_growing", *DEATHS, deadline=TORCH_DEADLINE_S)
    output, errors = run(words)
    assert errors.count(" died ") == 3, errors
    passes, contributors = [[] for _ in range(PASSES)], {}
    for line in re.findall(r"^\[\d\] step (.*)$", output, re.MULTILINE):
        number, step, rank, indices, ids = line.split(" ", 4)
        assert contributors.setdefault(step, ids) == ids
        assert int(rank) in ast.literal_eval(ids)
        passes[int(number)] += map(int, indices.split(","))
    assert [sorted(indices) for indices in passes] == [list(range(SAMPLES))] * PASSES
    (end,) = re.findall(r"^\[\d\] end \d+ (\[.*\]) ", output, re.MULTILINE)
    assert ast.literal_eval(end) == [[[1], [], 4, 3], [[3], [], 3, 2], [[2], [], 2, 1]]


def test_ranks_that_join_have_equal_bits(run_program):
    addresses = " ".join(ranks.free_address() for _ in range(4))
    ended = run_program("elastic_joined", 4, deadline_s=TORCH_DEADLINE_S, env={"ADDRESSES": addresses})
    lines = [line.split() for rank in ended for line in rank.output.splitlines()]
    assert len({words[1] for words in lines if words[0] == "end"}) == 1
    for number in range(4):
        samples = [int(one) for words in lines if words[:2] == ["step", str(number)] for one in words[3:]]
        assert sorted(samples) == list(range(203)), number


@pytest.mark.parametrize("megabytes", [9])
def test_a_state_is_given_and_a_difference_is_refused(run_program, megabytes):
    ended = run_program("elastic_transfer", 4, deadline_s=TORCH_DEADLINE_S, arguments=[megabytes])
    for rank in ended[2:]:
        assert "MiB from ranks 0, 1 in " in rank.output


def test_a_rank_joins_a_script_for_horovod(run_program):
    addresses = " ".join(ranks.free_address() for _ in range(3))
    ended = run_program("elastic_joined_horovod", 3, deadline_s=TORCH_DEADLINE_S, env={"ADDRESSES": addresses})
    lines = [line.split() for rank in ended for line in rank.output.splitlines()]
    for number in range(3):
        samples = [int(one) for words in lines if words[:2] == ["step", str(number)] for one in words[3:]]
        assert set(samples) == set(range(40)), number


DONORS = {  # deaths: the members at the end; a rank without the state ends alone
    (): [0, 1, 2, 3],
    ("0:gather 2",): [1, 2, 3],
    ("3:gather 2",): [0, 1, 2],
    ("0:gather 2", "1:gather 4"): [],
}


@pytest.mark.parametrize("deaths", DONORS, ids=str)
def test_deaths_during_a_transfer(deaths):
    words = command(4, "elastic_donors", *deaths, deadline=TORCH_DEADLINE_S)
    output, errors = run(words)
    ends = re.findall(r"^\[\d\] end (\d) (\[.*\]) \d (.*)$", output, re.MULTILINE)
    assert sorted(int(rank) for rank, *_ in ends) == DONORS[deaths], output + errors
    assert all(members == str(DONORS[deaths]) for _, members, _ in ends) and len({total for *_, total in ends}) <= 1
    assert len(re.findall("no rank that has the state is left", output)) == (2 if not DONORS[deaths] else 0)
