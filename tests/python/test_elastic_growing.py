"""horo.elastic.State: ranks are lost and join, all have equal bits, and each sample is used once per pass."""

import ast
import re
import sys

import pytest
import ranks
from test_elastic import TORCH_DEADLINE_S, command, run

SAMPLES, PASSES = 53, 3
SHRINKS = ("--min-np", "1", "--restarts", "0")
DEATHS = {  # rank:step:place, and the changes that all ranks have seen
    ("1:2:before", "3:9:after", "2:1:evaluation"): [[[1], [], 4, 3], [[3], [], 3, 2], [[2], [], 2, 1]],
    ("1:6:before",): [[[1], [], 4, 3]],  # leaves two samples to three ranks: one gets a copy that does not count
}


@pytest.mark.parametrize("deaths", DEATHS, ids=str)
def test_each_sample_counts_once_per_pass_when_ranks_die(deaths):
    output, errors = run(command(4, "elastic_growing", *deaths, options=SHRINKS, deadline=TORCH_DEADLINE_S))
    assert errors.count(" died ") == len(deaths), errors
    passes, contributors = [[] for _ in range(PASSES)], {}
    for line in re.findall(r"^\[\d\] step (.*)$", output, re.MULTILINE):
        number, step, rank, indices, ids = line.split(" ", 4)
        assert contributors.setdefault(step, ids) == ids
        passes[int(number)] += map(int, indices.split(",") if int(rank) in ast.literal_eval(ids) else ())
    assert [sorted(indices) for indices in passes] == [list(range(SAMPLES))] * PASSES
    ends = re.findall(r"^\[\d\] end (\d+ .*)$", output, re.MULTILINE)
    assert len(ends) == 4 - len(deaths) and len(set(ends)) == 1, ends
    assert str(DEATHS[deaths]) in ends[0]


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


def test_other_numbers_of_batches_raise_on_all_ranks_and_scripts_without_rounds_deal_again():
    output, errors = run(command(2, "elastic_uneven", options=SHRINKS, deadline=TORCH_DEADLINE_S))
    caught = re.findall(r"caught (\d) \d horo.elastic: ranks are at different batches", output)
    assert sorted(caught) == ["0", "1"], output + errors
    batches = [line.split() for line in re.findall(r"^\[\d\] batch (.*)$", output, re.MULTILINE)]
    used = [int(one) for me, number, _, *indices in batches for one in indices if (me, number) != ("1", "2")]
    assert sorted(used) == list(range(20)), batches


def evictions(*arguments):
    """Runs elastic_evicted; returns the output, the errors, and of each rank that ends its process, steps and values.
    A rank is a child of horo run, which sees that it is stopped."""
    options = ("--min-np", "2", "--evict-after", "0.5", "--restarts", "1", "--cool-down", "1")
    words = command(3, "elastic_evicted", *arguments, options=options, deadline=TORCH_DEADLINE_S)
    words[words.index(ranks.start.python())] = sys.executable
    output, errors = run(words)
    ends = [line.split() for line in re.findall(r"^\[\d+\] ends (.*)$", output, re.MULTILINE)]
    assert len(ends) == 3 and len({(steps, total) for *_, steps, total in ends}) == 1, output + errors
    return output, errors, [pid for _, pid, *_ in ends]


def test_an_evicted_rank_joins_again_in_its_process_as_long_as_it_has_a_restart_left():
    output, errors, pids = evictions("state", 3, "0:9:scaled", "2:14:backward", "2:170:scaled")
    assert errors.count(" runs again, and joins as rank ") == 2, errors
    first = dict(re.findall(r"^\[\d+\] begins (\d) (\d+)$", output, re.MULTILINE)[:3])
    assert first["0"] in pids and first["1"] in pids and first["2"] not in pids, output
    assert re.search(r"was evicted: it was stopped for 500 ms, and the other ranks went on without it", errors), errors
    assert "is not replaced for 1 s (--cool-down)" in errors and "[5] ends" in output, errors


@pytest.mark.long
def test_an_evicted_rank_of_a_script_for_horovod_joins_again_in_its_process():
    output, errors, pids = evictions("horovod", 3, "0:7:scaled")
    assert "rank 0 runs again, and joins as rank 3" in errors and "[3] ends" in output
    assert sorted(pids) == sorted(re.findall(r"^\[\d+\] begins \d (\d+)$", output, re.MULTILINE))
