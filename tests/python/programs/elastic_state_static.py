"""States of elastic.run on two ranks of a static job: what they save, give to all ranks, and refuse."""

import os
import threading

import claims
import torch
from claims import raises, same_bits

import horo.torch as hvd
from horo.torch import elastic
from horo.torch.elastic import base
from horo.torch.elastic.state import StateHandler


def made(lr=0.1, views=False, passes=1):
    """A model, and a DistributedOptimizer and scheduler of it."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    adam = torch.optim.AdamW(model.parameters(), lr=lr)
    options = {"gradient_as_bucket_view": views, "backward_passes_per_step": passes}
    optimizer = hvd.DistributedOptimizer(adam, model.named_parameters(), **options)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)


def trained(model, optimizer, scheduler, steps, seed=0, passes=1):
    data = torch.Generator().manual_seed(10 * seed + hvd.rank())
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(passes):
            model(torch.randn(6, 4, generator=data)).square().mean().backward()
        optimizer.step()
        scheduler.step()


def all_values(model, optimizer, scheduler):
    """Every tensor and number of the three, in one list."""
    found = list(model.state_dict().values()) + [torch.tensor(scheduler.last_epoch)]
    for entry in optimizer.state_dict()["state"].values():
        found += entry.values()
    return [each.detach().clone() for each in found] + [torch.tensor(optimizer.param_groups[0]["lr"])]


def check_equal(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        same_bits(a, b)


def all_ranks_get_the_state_of_rank_0():
    rank = hvd.rank()
    torch.manual_seed(rank)
    parts = made(lr=0.1 + rank)
    state = elastic.TorchState(*parts[:2], scheduler=parts[2], epoch=5 - rank, notes={"of": rank})
    seen = []

    @elastic.run
    def train(state, first, *, second):
        seen.append((state.epoch, state.notes, first, second, state.optimizer.param_groups[0]["lr"]))
        return all_values(*parts)

    values = train(state, 1, second=2)
    assert seen == [(5, {"of": 0}, 1, 2, 0.1)], seen
    assert train.__name__ == "train"
    for part in hvd.allgather_object(values):
        check_equal(part, values)


class Counting(torch.nn.Linear):
    calls = 0

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        self.calls = state["calls"]


def extra_states_of_modules_are_those_of_rank_0():
    model = torch.nn.Sequential(Counting(2, 2), torch.nn.Linear(2, 2))
    model[0].calls = 5 + hvd.rank()
    state = elastic.TorchState(model=model)
    elastic.run(lambda state: None)(state)
    assert model[0].calls == 5
    model[0].calls = 9
    state.restore()
    assert model[0].calls == 5
    model[0].calls = {"tensor": torch.full((3,), float(hvd.rank())), "kinds": [range(2 + hvd.rank())]}
    state.sync()
    assert model[0].calls["tensor"].tolist() == [0, 0, 0] and model[0].calls["kinds"] == [range(2)]
    model[0].calls, before = (lambda: 0), model[1].weight.clone()
    with raises(TypeError, "0._extra_state", "cannot be pickled"):
        state.sync()
    assert torch.equal(model[1].weight, before)


def what_is_restored_has_the_bits_that_were_saved():
    for views in (False, True):
        parts = made(views=views)
        model, optimizer, scheduler = parts
        state = elastic.TorchState(model, optimizer, scheduler=scheduler, log=[])
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        trained(*parts, steps=3)
        state.log.append("three")
        state.commit()
        saved = all_values(*parts)
        after = []
        for _ in range(2):  # what is restored does not change what was saved
            trained(*parts, steps=2, seed=1)
            state.log.append("five")
            after.append(all_values(*parts))
            model(torch.ones(2, 4)).sum().backward()
            state.restore()
            check_equal(all_values(*parts), saved)
            assert state.log == ["three"] and state.model is model and state.optimizer is optimizer
            assert all(each.grad is None or not each.grad.any() for each in model.parameters())
        check_equal(*after)
        state.model = model  # a new value of a handler is saved
        assert state._handlers["model"].value is model


def a_restore_forgets_the_passes_of_the_step_that_it_gives_up():
    results = []
    for is_given_up in (False, True):
        torch.manual_seed(3)
        parts = made(passes=2)
        state = elastic.TorchState(*parts[:2])
        state.commit()
        if is_given_up:
            parts[0](torch.ones(3, 4)).sum().backward()  # on its own: the round begins with the second pass
            state.restore()
        trained(*parts, steps=2, passes=2)
        results.append(all_values(*parts))
    check_equal(*results)


def an_update_that_one_rank_was_told_of_interrupts_all_once():
    for update, skips in ((base.REMOVED, True), (base.ADDED, False), (base.REMOVED | base.ADDED, False)):
        state, calls, callbacks = elastic.TorchState(value=hvd.rank(), i=0), [], []
        state.register_reset_callbacks([lambda: callbacks.append("first"), lambda: callbacks.append(state.i)])

        @elastic.run
        def train(state):
            calls.append((state.i, state.value))
            if len(calls) == 1:
                state.value = hvd.rank() + 10
            for state.i in range(state.i, 4):
                if state.i == 2 and hvd.rank() == 1 and len(calls) == 1:
                    state.on_hosts_updated(1, update)
                    state.on_hosts_updated(1, update)
                state.check_host_updates()
            return "end"

        assert train(state) == "end"
        assert calls == [(0, 0), (2, hvd.rank() + 10 if skips else 10)], calls
        assert callbacks == ["first", 2], callbacks
    with raises(hvd.HostsUpdatedInterrupt):
        state.on_hosts_updated(2, base.REMOVED)
        state.commit()


def ranks_at_different_calls_are_told_so():
    state = elastic.TorchState(value=1)
    state.commit()
    with raises(hvd.Mismatch, "rank 0 at commit() number 2", "rank 1 at check_host_updates() after 1 commits"):
        (state.check_host_updates if hvd.rank() else state.commit)()
    state.commit()
    if hvd.rank():
        state._commits += 1  # as after a commit that the other rank has not made
    with raises(hvd.Mismatch, "rank 0 at commit() number 3; rank 1 at commit() number 4"):
        state.commit()


def mistakes_are_errors():
    train = elastic.run(lambda state: None)
    for arguments in ((), (3,)):
        with raises(TypeError, "a function of elastic.run", "expected an elastic State"):
            train(*arguments)
    for value, what in ((lambda: None, "pickled"), (threading.Lock(), "copied")):
        state = elastic.TorchState(bad=value)
        with raises(TypeError, "the attribute 'bad'", f"cannot be {what}"):
            train(state)
    os.environ["HOROVOD_ELASTIC_RESET_LIMIT"] = "two"
    with raises(ValueError, 'HOROVOD_ELASTIC_RESET_LIMIT="two"'):
        train(elastic.TorchState())
    os.environ["HOROVOD_ELASTIC_RESET_LIMIT"] = "2"
    calls = []

    @elastic.run
    def always(state):
        calls.append(1)
        raise hvd.HostsUpdatedInterrupt(True)

    with raises(RuntimeError, "number of resets during elastic job exceeded limit: 2"):
        always(elastic.TorchState())
    assert len(calls) == 3
    del os.environ["HOROVOD_ELASTIC_RESET_LIMIT"]


def other_errors_are_raised_as_they_are():
    calls = []

    @elastic.run
    def train(state):
        calls.append(1)
        hvd.allreduce(torch.ones(1 + hvd.rank()), name="shapes")

    with raises(hvd.Mismatch, "shapes"):
        train(elastic.TorchState())
    assert len(calls) == 1

    @elastic.run
    def drained(state):
        raise hvd.Drained

    try:
        drained(elastic.TorchState())
        raise AssertionError("swallowed")
    except SystemExit as error:
        assert error.code == 0


def handlers_can_be_added():
    class Handler(StateHandler):
        def save(self):
            self.saved = list(self.value)

        def restore(self):
            self.value[:] = self.saved

        def sync(self):
            self.value[:] = hvd.broadcast_object(self.value, 0, name="handler")

    before = elastic.get_handler_registry()
    assert [kind.__name__ for kind, _ in before][:3] == ["Module", "Optimizer", "ElasticSampler"]
    elastic.set_handler_registry([(list, Handler), *before])
    values = [hvd.rank()]
    state = elastic.TorchState(values=values)
    elastic.set_handler_registry(before)
    elastic.run(lambda state: state.values.append(9))(state)
    assert state.values is values and values == [0, 9]
    state.restore()
    assert values == [0]


def what_ranks_have_processed_is_united_at_a_sync():
    sampler = elastic.ElasticSampler(range(20), shuffle=False)
    state = elastic.TorchState(sampler=sampler)
    sampler.record_batch(0, 3)
    state.commit()
    sampler.record_batch(1, 3)
    state.restore()
    assert sampler.processed_indices == set(list(sampler)[:3])
    sampler.record_batch(3, 1)
    assert len(sampler) == 10
    state.sync()
    assert sampler.processed_indices == set(range(8)) and list(sampler) == list(range(8 + hvd.rank(), 20, 2))


def a_lost_rank_of_a_static_job_is_an_error():
    calls = []

    @elastic.run
    def train(state):
        calls.append(1)
        if hvd.rank() == 1:
            print("done", flush=True)
            os._exit(0)
        hvd.allreduce(torch.ones(1), name="last")

    with raises(hvd.PeerLost, "rank 1"):
        train(elastic.TorchState())
    assert len(calls) == 1


claims.check(
    all_ranks_get_the_state_of_rank_0,
    extra_states_of_modules_are_those_of_rank_0,
    what_is_restored_has_the_bits_that_were_saved,
    a_restore_forgets_the_passes_of_the_step_that_it_gives_up,
    an_update_that_one_rank_was_told_of_interrupts_all_once,
    ranks_at_different_calls_are_told_so,
    mistakes_are_errors,
    other_errors_are_raised_as_they_are,
    handlers_can_be_added,
    what_ranks_have_processed_is_united_at_a_sync,
    a_lost_rank_of_a_static_job_is_an_error,
)
