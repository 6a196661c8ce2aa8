"""horo.elastic.Sampler: each sample once per pass, whatever ranks die, join, stop or are prefetched for."""

import os

import pytest
import torch
from elastic_ranks import Job
from torch.utils.data import DataLoader, Dataset

from horo import _default
from horo.elastic import Sampler, State
from horo.elastic.deal import Deal, Place, part_of, take
from horo.elastic.order import Order


class Numbers(Dataset):
    """Sample i is i."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return index


class Prefetching:
    """A loader that draws batches early, as workers do, without processes."""

    def __init__(self, sampler, depth):
        self.batch_sampler, self._depth = sampler, depth

    def __iter__(self):
        drawn, queue = iter(self.batch_sampler), []
        while True:
            while len(queue) <= self._depth and (batch := next(drawn, None)) is not None:
                queue.append(batch)
            if not queue:
                return
            yield queue.pop(0)


def check_passes(job):
    for number, indices in enumerate(job.committed):
        assert sorted(indices) == list(range(job.length)), number


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 17, 100, 1437])
def test_an_order_has_each_index_once(length):
    for seed, number in ((0, 0), (0, 1), (7, 0)):
        order = Order(length, seed, number)
        assert sorted(order[i] for i in range(length)) == list(range(length))


def test_an_order_is_the_same_on_every_machine():
    torch.manual_seed(5)
    assert [Order(10, 0, 0)[i] for i in range(10)] == [4, 3, 8, 0, 5, 9, 1, 6, 7, 2]
    assert [Order(10, 0, 1)[i] for i in range(10)] == [6, 8, 7, 0, 2, 5, 9, 4, 3, 1]


def test_first_places_of_many_orders_are_even():
    counts = torch.zeros(10)
    for seed in range(5000):
        counts[Order(10, seed, 0)[0]] += 1
    assert counts.min() > 400 and counts.max() < 600, counts


def test_parts_are_runs_whose_sizes_differ_by_at_most_one():
    runs, place = take(Place(3, ((0, 2),)), 6, 8)
    assert (runs, place) == ([(3, 8), (0, 1)], Place(8, ((1, 2),)))
    assert [part_of(runs, index, 4) for index in range(4)] == [[(3, 5)], [(5, 7)], [(7, 8)], [(0, 1)]]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("batch_size", [1, 2, 5, 32])
def test_every_rank_has_a_sample_in_each_step_and_the_last_two_steps_are_even(count, batch_size):
    for length in range(count, 3 * count * batch_size + 2):
        deals = [Deal(length, batch_size) for _ in range(count)]
        for me, deal in enumerate(deals):
            deal.begin(range(count), me)
        steps, expected = [], deals[0].steps()
        while (parts := [deal.draw() for deal in deals])[0] is not None:
            steps.append([len(part.positions) for part in parts])
        assert len(steps) == expected
        assert sum(map(sum, steps)) == length
        assert all(min(step) >= 1 and max(step) - min(step) <= 1 for step in steps)
        assert all(max(step) <= max(batch_size, 2 if batch_size == 1 else 0) for step in steps)
        if len(steps) > 1:
            assert abs(sum(steps[-1]) - sum(steps[-2])) <= 1 or sum(steps[-2]) == count * batch_size


def test_drop_last_leaves_out_what_does_not_fill_all_batches():
    deal = Deal(11, 2, True)
    deal.begin((0, 1), 0)
    assert deal.steps() == 2 and [deal.draw() is None for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("length, options, most", [(3, {}, 3), (100, {"batch_size": 30, "drop_last": True}, 3)])
def test_ranks_without_a_step_are_refused(length, options, most):
    sampler = Sampler(length, **options)
    assert State(sampler=sampler, other=Sampler(50)).most_ranks() == most and State(best=1).most_ranks() is None
    sampler.begin(range(most), 0)
    assert len(sampler) == 1
    with pytest.raises(ValueError, match=f"{length} samples for 4 ranks; expected at least .* for each"):
        sampler.begin(range(most + 1), 0)


def test_a_process_that_joins_can_ask_for_the_length(monkeypatch):
    class Session:
        class topology:
            rank, size = 3, 4

        is_joiner = True

    monkeypatch.setattr(_default, "current", lambda: Session)
    assert len(Sampler(12)) == 3 and len(Sampler(100, 30, drop_last=True)) == 1


def test_a_state_of_another_data_set_is_refused():
    with pytest.raises(ValueError, match="expected that of the same data set"):
        Sampler(10).load_state_dict({"pass": 0, "cursor": 11, "again": []})


def test_thousands_of_kills_and_joins_with_prefetching_loaders():
    events = 0
    for seed in range(400):
        shape, size = (1 + seed % 5 * 37 + 8, 1 + seed % 4), 1 + seed % 6
        job = Job(shape, size, 3, seed, lambda sampler, seed=seed: Prefetching(sampler, seed % 7))
        job.run(chance=0.3, most=8)
        check_passes(job)
        events += job.events
        assert all(min(batch.values()) >= 1 for batch in job.batches)
    assert events > 3000


def test_many_kills_and_joins_with_workers_that_prefetch():
    wanted = 300 if os.environ.get("LARGE_TESTS") else 60

    def loader_of(sampler):
        options = {"num_workers": 2, "prefetch_factor": 4, "persistent_workers": sampler.seed % 2 == 0}
        return DataLoader(Numbers(sampler.length), batch_sampler=sampler, collate_fn=list, **options)

    events, seed = 0, 0
    while events < wanted:
        job = Job((223, 3), 3, 4, seed, loader_of)
        job.run(chance=0.5, most=4)
        check_passes(job)
        events, seed = events + job.events, seed + 1
