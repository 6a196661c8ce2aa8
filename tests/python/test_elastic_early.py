"""A rank that has joined in the middle of a pass: its script calls no collective before its first batch."""

import pytest
import torch
from torch.utils.data import DataLoader

import horo.torch as horo
from horo import _default, _native
from horo._specs import Spec
from horo.elastic import Sampler, State


@pytest.fixture
def alone():
    horo.init()
    yield _default.session()
    horo.shutdown()


def backward_of(optimizer):
    sum(param.sum() for group in optimizer.param_groups for param in group["params"]).backward()


def test_all_collectives_are_refused_by_name(alone):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = horo.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    x, again = torch.ones(2), torch.ones(2)
    for _ in range(3):
        horo.allreduce_(again, name="again")
    barrier = Spec("barrier of a group", _native.BARRIER)
    alone.begin_early()
    for call, named in [
        (lambda: horo.allreduce(x, name="val"), "a collective of tensor 'val'"),
        (lambda: horo.allreduce_(again, name="again"), "a collective of tensor 'again'"),
        (lambda: horo.broadcast(x, 0, name="w"), "a collective of tensor 'w'"),
        (lambda: horo.grouped_allreduce([x, x], name="both"), "a collective of tensor 'both'"),
        (lambda: horo.barrier(), "a collective before"),
        (lambda: horo.join(), r"join\(\) before"),
        (lambda: horo.add_process_set([0]), r"add_process_set\(\) before"),
        (lambda: alone.remove_set(1), r"remove_process_set\(\) before"),
        (lambda: alone.submit_spec(barrier, None, None, None), "'barrier of a group'"),  # as torch.distributed does
        (lambda: alone.submit_key(alone.key(barrier), None, None, None), "a collective before"),
        (lambda: backward_of(optimizer), r"(backward\(\) of a DistributedOptimizer|'rounds of optimizers') before"),
    ]:
        with pytest.raises(RuntimeError, match=rf"rank 0 has joined in the middle of a pass, .*{named}"):
            call()
    alone.end_early()
    optimizer.zero_grad()
    backward_of(optimizer)
    assert torch.equal(model.weight.grad, torch.ones(2, 2))


def test_a_loop_that_the_others_have_behind_them_does_not_end_that(alone, monkeypatch):
    averages = []
    monkeypatch.setattr(State, "_average", lambda state: averages.append(state.step))
    samplers = {"first": Sampler(4, batch_size=2), "second": Sampler(6, batch_size=2)}
    loaders = {name: DataLoader(list(range(9)), batch_sampler=sampler) for name, sampler in samplers.items()}
    state, found = State(**samplers, buffers="mean"), []

    def use_up(sampler):
        while sampler.steps_left():
            sampler.notes.append(sampler.deal.draw())
            sampler.receive()
            sampler.deal.settle({0})

    @horo.elastic.run
    def train(state):
        for _ in state.passes(1):
            use_up(samplers["first"])  # as the ranks have that this one joins
            alone.begin_early()
            assert not list(state.batches(loaders["first"])) and not averages
            with pytest.raises(RuntimeError, match="a collective of tensor 'between'"):
                horo.allreduce(torch.ones(1), name="between")
            for batch in state.batches(loaders["second"]):
                found.append(horo.allreduce(batch, op=horo.Sum, name="loss").tolist())

    train(state)
    assert len(found) == 3 and averages == [3]
