"""Horovod's elastic API: functions of elastic.run go on when ranks are lost, and samplers deal each sample."""

import ast
import itertools
import random
import re

import pytest
import torch
from test_elastic import TORCH_DEADLINE_S, command, run

from horo.torch.elastic import sampler as sampler_module

SAMPLES, EPOCHS = 60, 3
CONTRIBUTORS = [(0, {0, 1, 2, 3, 4})] * 3 + [(0, {0, 1, 2, 4})] * 5  # of each step, and its epoch
CONTRIBUTORS += [(1, {0, 1, 2, 4})] * 2 + [(1, {1, 2, 4})] * 8 + [(2, {1, 2, 4})] + [(2, {1, 2})] * 14


def trained(batches):
    """theta after these steps in one process. batches: for each step the samples of each rank."""
    points = torch.randn(SAMPLES, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    theta, momentum = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for parts in batches:
        gradient = sum((theta - points[numbers]).mean(0) for numbers in parts) / len(parts)
        momentum = 0.9 * momentum + gradient
        theta = theta - 0.1 * momentum
    return theta


def test_training_goes_on_and_processes_each_sample():
    options = ("--min-np", "1", "--restarts", "0")
    output, errors = run(command(6, "elastic_state", options=options, deadline=TORCH_DEADLINE_S))
    assert errors.count(" died ") == 4, errors
    batches = {}  # by step and rank: its samples; a step that was given up is printed again
    for words in re.findall(r"^\[\d\] batch (.*)$", output, re.MULTILINE):
        rank, _, step, *numbers = map(int, words.split())
        batches[step, rank] = numbers
    ends = [line.split("|") for line in re.findall(r"^\[\d\] end\|(.*)$", output, re.MULTILINE)]
    assert sorted(rank for rank, *_ in ends) == ["1", "2"], output
    assert ends[0][1:] == ends[1][1:]
    calls, changes, history, theta = map(ast.literal_eval, ends[0][1:])
    assert calls == [(0, 5, 0), (0, 4, 3), (1, 3, 10), (2, 2, 19)]  # epoch, size, steps that count
    assert changes == [
        (5, 5, 12),
        (4, 4, 9),
        (3, 3, 16),
        (2, 2, 28),
    ]  # one for each change: size, and what the sampler deals
    assert [(epoch, set(ranks)) for epoch, ranks in history] == CONTRIBUTORS
    for epoch, survivors in enumerate(({0, 1, 2, 4}, {1, 2, 4}, {1, 2})):
        steps = [step for step, (one, _) in enumerate(history) if one == epoch]
        done = [i for step in steps for rank in survivors for i in batches[step, rank]]
        assert sorted(done) == list(range(SAMPLES)), epoch
    expected = trained([[batches[step, rank] for rank in ranks] for step, (_, ranks) in enumerate(history)])
    assert torch.allclose(torch.tensor(theta, dtype=torch.float64), expected, rtol=0, atol=1e-14)


def test_states_in_a_static_job(run_program):
    run_program("elastic_state_static", 2)


def test_all_ranks_begin_with_the_state_of_rank_0(run_program):
    run_program("elastic_start", 3)


@pytest.fixture
def samplers(monkeypatch):
    """samplers(count, data, ...): the ElasticSamplers of all ranks of a job."""

    def make(count, data, **options):
        made = []
        monkeypatch.setattr(sampler_module, "size", lambda: count)
        for number in range(count):
            monkeypatch.setattr(sampler_module, "rank", lambda number=number: number)
            made.append(sampler_module.ElasticSampler(range(data), **options))
            made[-1].is_in_state = True  # it keeps its number
        return made

    return make


def check_deal(parts, samples):
    """Each sample is dealt, the parts are equally long, and only what is missing is dealt twice."""
    dealt = list(itertools.chain(*parts))
    assert set(dealt) == set(samples)
    assert {len(part) for part in parts} == {-(-len(samples) // len(parts))}
    assert len(dealt) - len(samples) < len(parts)


@pytest.mark.parametrize("count, data", [(1, 7), (2, 8), (3, 8), (4, 1), (5, 3), (3, 0), (8, 100)])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_sampler_deals_all_samples_and_what_is_left_to_fewer_ranks(samplers, count, data, shuffle):
    ranks = samplers(count, data, shuffle=shuffle, seed=5)
    for epoch in (0, 1):
        parts = [list(one) for one in ranks]
        check_deal(parts, range(data))
        assert [len(one) for one in ranks] == [len(part) for part in parts]
        order = list(range(data))
        if shuffle:
            random.Random(5 + epoch).shuffle(order)
        assert [i for row in zip(*parts) for i in row][:data] == order
        for one, part in zip(ranks, parts):
            one.record_batch(0, 2)
            assert one.processed_indices == set(part[:2]) and list(one) == part
        left = max(1, count - 1)
        processed = set().union(*(one.processed_indices for one in ranks[:left]))
        for number, one in enumerate(ranks[:left]):
            one.processed_indices = set(processed)
            one.deal_to(number, left)
        check_deal([list(one) for one in ranks[:left]], set(range(data)) - processed)
        for number, one in enumerate(ranks):
            one.deal_to(number, count)
            one.set_epoch(epoch + 1)
            assert not one.processed_indices


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_sampler_has_horovods_later_form_too(samplers, shuffle):
    """Whose state is the number of samples that all ranks have processed."""
    ranks = samplers(3, 20, shuffle=shuffle, seed=5)
    for batch in range(2):
        for one in ranks:
            assert one.processed_num == batch * 6
            one.record_batch(batch, 2)
    state = {name: value for name, value in ranks[0].state_dict().items() if name != "processed_indices"}
    assert state == {"epoch": 0, "processed_num": 12}
    processed = set().union(*(one.processed_indices for one in ranks))
    for one in samplers(2, 20, shuffle=shuffle, seed=5):
        one.load_state_dict(state)
        assert one.processed_indices == processed and one.processed_num == 12 and len(one) == 4
        assert not set(one) & processed
        one.set_epoch(1)
        assert one.processed_num == 0 and len(one) == 10


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_checkpoint_of_one_rank_tells_what_all_have_processed(samplers, shuffle):
    """Also of one that was loaded, in Horovod's later form, and in that of versions that told one rank's indices."""
    processed, state = set(), {"epoch": 0}
    for count in (3, 2, 4):
        ranks = samplers(count, 29, shuffle=shuffle, seed=5)
        for one in ranks:
            one.load_state_dict(state)
            assert one.processed_indices == processed and one.processed_num == len(processed)
            processed_here = set(list(one)[:2])
            one.record_batch(0, 2)
            assert not processed_here & processed
        everything = processed.union(*(one.processed_indices for one in ranks))
        for one in ranks:
            assert one.state_dict() == ranks[0].state_dict()
            state, number = one.state_dict(), {"epoch": 0, "processed_num": one.processed_num}
            assert state["processed_indices"] == everything
            for form in (state, number, number | {"processed_indices": one.processed_indices}):
                other = samplers(1, 29, shuffle=shuffle, seed=5)[0]
                other.load_state_dict(form)
                assert sorted(other) == sorted(set(range(29)) - everything)
        processed = everything


def test_a_sampler_is_saved_and_refuses_batches_that_do_not_exist(samplers):
    one, other = samplers(2, 10)
    one.record_indices([7, 8])
    one.record_batch(4, 1)
    assert one.get_indices(4, 1) == list(one)[4:] and one.get_indices(9, 1) == []
    other.load_state_dict(one.state_dict())
    assert other.state_dict() == one.state_dict() and other.processed_indices is not one.processed_indices
    assert len(other) == -(-(10 - len(other.processed_indices)) // 2) and not set(other) & other.processed_indices
    state = one.state_dict()
    del state["processed_num"]
    other.load_state_dict(state)  # of a version without the number
    assert other.processed_indices == state["processed_indices"] >= one.processed_indices
    for batch in ((-1, 2), (0, 0)):
        with pytest.raises(ValueError, match=f"batch {batch[0]} of {batch[1]}"):
            one.get_indices(*batch)
