"""horo.elastic.run: the loop with a session that never grows, what a Border counts, and what a rank that joins must
have, too."""

import itertools

import numpy
import pytest
import torch
from elastic_ranks import Session
from torch.utils.data import DataLoader, Dataset

import horo
import horo.torch
from horo import _default
from horo.elastic import Sampler, State, loop
from horo.elastic.border import Border
from horo.torch import rounds
from horo.torch.elastic import loop as horovods_loop
from horo.torch.round_state import RoundState


class Squares(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index * index


@pytest.fixture
def alone():
    horo.init()
    yield _default.session()
    horo.shutdown()


@pytest.mark.parametrize("run", [horo.elastic.run, horo.torch.elastic.run])
def test_the_same_script_runs_alone(alone, run):
    sampler = Sampler(10, batch_size=4)
    loader = DataLoader(Squares(), batch_sampler=sampler)
    state = State(sampler=sampler, steps=0)
    found = []

    @run
    def train(state, word):
        for number in state.passes(3):
            batches = state.batches(loader)
            assert len(batches) == len(loader) == 3
            for batch in batches:
                state.steps += 1
                found.append((number, *batch.tolist()))
        return word

    assert train(state, "word") == "word" and state.steps == 9
    for number in range(3):
        assert sorted(one for row in found if row[0] == number for one in row[1:]) == [i * i for i in range(10)]


def test_a_pass_goes_on_after_a_break(alone):
    sampler = Sampler(10, batch_size=4)
    loader, state, found = DataLoader(Squares(), batch_sampler=sampler), State(sampler=sampler), []

    @horo.elastic.run
    def train(state):
        for _ in state.passes(1):
            for batch in state.batches(loader):
                found.extend(batch.tolist())
                break
            assert len(state.batches(loader)) == 2
            found.extend(one for batch in state.batches(loader) for one in batch.tolist())

    train(state)
    assert sorted(found) == [i * i for i in range(10)]


def test_draws_of_a_step_follow_from_seed_member_and_step(alone):
    def draws(steps_before):
        sampler = Sampler(4, batch_size=1, seed=5)
        state, found = State(sampler=sampler), []

        @horo.elastic.run
        def train(state):
            state._step = steps_before
            for _ in state.batches(DataLoader(Squares(), batch_sampler=sampler)):
                found.append((torch.rand(()).item(), numpy.random.rand()))

        train(state)
        return found

    assert draws(0)[2:] == draws(2)[:2] and len(set(draws(0))) == 4


@pytest.mark.parametrize(
    "loader, text",
    [
        (DataLoader(Squares()), "whose batch_sampler is a BatchSampler; expected DataLoader"),
        ([1, 2], r"a list is no DataLoader.* \(it has: sampler\)"),
        (DataLoader(Squares(), batch_sampler=Sampler(10)), "the loader's Sampler is no field of the State"),
    ],
)
def test_another_loader_is_refused(alone, loader, text):
    state = State(sampler=Sampler(10))
    with pytest.raises((TypeError, ValueError), match=text):
        horo.elastic.run(lambda state: list(state.batches(loader)))(state)


def test_a_second_loop_over_a_pass_that_is_over_is_refused(alone):
    sampler = Sampler(10, batch_size=4)
    loader, state, steps = DataLoader(Squares(), batch_sampler=sampler), State(sampler=sampler), []

    @horo.elastic.run
    def train(state):
        for _ in range(3):
            for _ in state.batches(loader):
                steps.append(state.step)

    with pytest.raises(RuntimeError, match="the pass is over; expected a loop over State.passes"):
        train(state)
    assert steps == [1, 2, 3]
    with pytest.raises(AttributeError):
        state.step = 7

    @horo.elastic.run
    def joined_in_a_later_loop(state):
        while sampler.steps_left():  # as other ranks have done before this one joined
            sampler.notes.append(sampler.deal.draw())
            sampler.receive()
            sampler.deal.settle({0})
        assert not list(state.batches(loader))

    sampler.start(1)
    joined_in_a_later_loop(state)


class Elastic:
    """What the end of a function reads of a session."""

    def __init__(self, is_elastic=True, closed=False, error=None):
        self.is_elastic, self.closed, self.error, self.calls = is_elastic, closed, error, 0

    def cannot_grow(self):
        self.calls += 1
        if self.error is not None:
            raise self.error


def test_growth_is_taken_back_when_a_function_has_ended():
    for session in (Elastic(), Elastic(error=horo.PeerLost("rank 1 is gone")), Elastic(error=horo.ShutDown("closed"))):
        loop.take_back(session)
        assert session.calls == 1
    for session in (Elastic(is_elastic=False), Elastic(closed=True)):
        loop.take_back(session)
        assert session.calls == 0


def test_calls_of_functions_are_counted(alone, monkeypatch):
    told = []
    monkeypatch.setattr(loop, "text_of", lambda terms, call, *_: told.append(call) or "")
    monkeypatch.setattr(horovods_loop, "text_of", loop.text_of)
    for state in (State(best=1), horo.torch.elastic.ObjectState(lambda value: value, lambda: 0), State(best=1)):
        horo.elastic.run(lambda state: None)(state)
    assert told == [told[0], told[0] + 1, told[0] + 2]


@pytest.mark.parametrize("is_same", [True, False])
def test_a_function_may_call_another_one(alone, monkeypatch, is_same):
    def state_of():
        sampler = Sampler(10, batch_size=4)
        return State(sampler=sampler), DataLoader(Squares(), batch_sampler=sampler)

    monkeypatch.setattr(alone, "is_elastic", True)
    calls, steps = [], []
    for name in ("can_grow", "cannot_grow"):
        monkeypatch.setattr(alone, name, lambda *_, name=name: calls.append(name))
    monkeypatch.setattr(loop, "_calls", itertools.count(loop.FIRST_CALL))
    (state, loader), (other, loader_of_other) = state_of(), state_of()
    inner_state, inner_loader = (state, loader) if is_same else (other, loader_of_other)

    @horo.elastic.run
    def finish(state, word):
        assert alone.census is state._border._census
        for _ in state.passes(1):
            steps.extend(len(batch) for batch in state.batches(inner_loader))
        if word == "raises":
            raise KeyError(word)
        return word

    @horo.elastic.run
    def train(state):
        for _ in state.passes(2):
            steps.extend(len(batch) for batch in state.batches(loader))
        assert calls == ["can_grow"]
        assert finish(inner_state, "word") == "word" and set(calls[1:]) == {"cannot_grow"}
        assert alone.census is state._border._census
        steps.extend(len(batch) for batch in state.batches(loader))
        return finish(inner_state, "raises")

    with pytest.raises(KeyError, match="raises"):
        train(state)
    assert alone.census is None and state._border is None and calls[-1] == "cannot_grow"
    assert sum(steps) == (30 if is_same else 40)


def test_loops_outside_of_run_are_refused():
    with pytest.raises(RuntimeError, match="expected in a function of horo.elastic.run"):
        next(State(best=1).passes(3))


def test_an_exception_of_the_script_is_raised_as_it_is(alone):
    def train(state):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        horo.elastic.run(train)(State(best=1))
    assert alone.census is None


class Gradients:
    """What a Border reads of the Gradients of an optimizer."""

    def __init__(self):
        self.round = RoundState(2, may_add=True)


def test_gradients_are_absent_by_their_own_batch_alone():
    gradients = Gradients()
    border = Border(Session((0, 1), 0), lambda: [gradients])
    for counts in (True, False, True):
        border.count_batch(counts)
        assert gradients.round.is_absent != counts
    gradients.round.end_pass()  # of this batch: it has only accumulated
    border.count_batch(False)
    assert gradients.round.is_dirty and not gradients.round.is_absent


class Told:
    """An active Gradients of the world."""

    class declared:
        class stream:
            number = 3

    class round:
        is_dirty = False


def test_an_optimizer_that_is_no_field_is_refused():
    border = Border(Session((0,), 0), lambda: [Told])
    border._census.exchange = lambda: border._census.take((0, 0, 1, 1, 1))
    border._census.told = {3: "weight"}
    assert border.settle(is_end=True) == ({0}, False)
    border._census.told = {3: "weight", 4: "other.weight"}
    with pytest.raises(RuntimeError, match=r"first parameter is other.weight, .* give the DistributedOptimizer to St"):
        border.settle()


def test_terms_have_the_options_of_a_distributed_optimizer(alone):
    def terms(wrap=True, **options):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if wrap:
            options.setdefault("named_parameters", model.named_parameters())
            optimizer = horo.torch.DistributedOptimizer(optimizer, **options)
        return State(optimizer=optimizer).terms()

    plain, same = terms(), terms()
    assert plain == same and "state.optimizer.distributed.op=Average" in plain
    for options, line in [
        ({"op": horo.torch.Sum}, "op=Sum"),
        ({"compression": horo.torch.Compression.fp16}, "compression=fp16"),
        ({"backward_passes_per_step": 2}, "backward_passes_per_step=2"),
        ({"groups": 1}, "groups=[[0, 1]]"),
        ({"sparse_as_dense": True}, "sparse_as_dense=True"),
        ({"gradient_predivide_factor": 2.0}, "gradient_predivide_factor=2.0"),
        ({"op": horo.torch.Adasum}, "op=Adasum"),
        ({"wrap": False}, "is=no"),
    ]:
        assert f"state.optimizer.distributed.{line}" in set(terms(**options)) - set(plain)


def test_very_long_terms_become_a_hash():
    assert loop.text_of(["a=1", "b=2"], 3) == "state.run=3\na=1\nb=2"
    lines = [f"state.a{number}=float32[3]" for number in range(40000)]
    assert loop.text_of(lines, 1).startswith("state.run=1\nstate=sha256 ")
    assert loop.text_of(lines, 1) != loop.text_of(lines[:-1], 1)


@pytest.mark.parametrize("count", [1, 40000])
def test_a_difference_is_named_before_the_number_of_ranks_that_follows_from_it(count):
    lines = [f"state.sampler=Sampler of 99 samples {number}" for number in range(count)]
    assert loop.text_of(lines, 1, 99).splitlines()[-1] == "most_ranks=99"
    assert loop.text_of(lines, 1, 99).splitlines()[:-1] == loop.text_of(lines, 1).splitlines()


def test_a_rank_that_leaves_in_the_middle_of_a_backward_forgets_its_round(alone):
    model = torch.nn.Linear(2, 1)
    names = model.named_parameters()
    optimizer = horo.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=names)
    model(torch.ones(1, 2)).sum().backward()
    gradients = optimizer._horo_gradients
    assert gradients.round.is_due(gradients.declared.states[0])
    with pytest.raises(RuntimeError, match="complete twice in one backward"):
        gradients.round.is_due(gradients.declared.states[0])
    gradients.declared.session.close()
    rounds.forget_all()
    assert gradients.round.is_due(gradients.declared.states[0]) and model.weight.grad is None
