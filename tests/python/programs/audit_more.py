"""The audit on three ranks: what it compares, its settings, joined ranks, process sets and the shutdown."""

import gc
import time
import warnings

import claims
import torch
from audited import MOST_LATER, Trained, difference_of, is_between, session
from claims import raises

import horo.torch as hvd
from horo.torch import devices


def what_ranks_may_hold_in_several_ways_is_equal():
    """Strides, types of numbers, None and absent options, callables."""
    with session(AUDIT="raise"):
        model = torch.nn.Conv2d(3, 4, 3)
        with torch.no_grad():
            for param in model.parameters():
                param.fill_(0.5).view(-1)[1] = 2
        if hvd.rank() == 1:
            model = model.to(memory_format=torch.channels_last)
        plain = torch.optim.SGD(model.parameters(), lr=1 if hvd.rank() == 2 else 1.0)
        plain.param_groups[0]["callback"] = lambda: None
        if hvd.rank() == 0:
            plain.param_groups[0]["unused"] = None
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
        hvd.audit()
        optimizer.param_groups[0]["callback"] = "text" if hvd.rank() == 1 else (lambda: None)
        with raises(hvd.ReplicasDiffer, "option callback of group 0", "'text' on rank 1", "of type function"):
            hvd.audit()
        del optimizer


class OnGpu(torch.Tensor):
    """As a tensor on a GPU of this rank's number looks to the audit."""

    is_cpu = False
    device = property(lambda _: torch.device("cuda", hvd.rank()))


def devices_of_other_numbers_are_no_difference():
    with session(AUDIT="raise"):
        model = torch.nn.Linear(3, 4)
        hvd.broadcast_parameters(model.state_dict(), 0)
        plain = torch.optim.SGD(model.parameters(), lr=1)
        plain.param_groups[0]["lr"] = torch.ones(2).as_subclass(OnGpu)
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
        hvd.audit()
        del optimizer


def values_are_in_the_text():
    with session(AUDIT="raise"):
        trained = Trained(torch.optim.Adam, {"lr": 0.25})
        trained.step()
        if hvd.rank() == 2:
            trained.optimizer.param_groups[0]["betas"] = (0.9, 0.5)
        with raises(hvd.ReplicasDiffer, "option betas[1] of group 0", "0.5 on rank 2, 0.999 on ranks 0 and 1"):
            hvd.audit()
        trained.optimizer.param_groups[0]["betas"] = (0.9, 0.999)
        trained.optimizer.param_groups[0]["lr"] = [0.25, 0.5, 0.75][hvd.rank()]
        with raises(hvd.ReplicasDiffer, "0.5 on rank 1, 0.75 on rank 2, 0.25 on rank 0"):
            hvd.audit()
        trained.optimizer.param_groups[0]["lr"] = 0.25
        if hvd.rank() == 0:
            trained.names["2.bias"].data = torch.zeros(4)
        with raises(hvd.ReplicasDiffer, "parameter 2.bias", "float32 [4] on rank 0, float32 [3] on ranks 1 and 2"):
            hvd.audit()
        del trained


def warned(action):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        action()
    return [warning for warning in seen if "is not equal on all ranks" in str(warning.message)]


def a_difference_is_warned_of_once():
    with session():
        trained = Trained(torch.optim.SGD, {"lr": 0.01})
        assert not warned(trained.step)
        if hvd.rank() == 1:
            trained.names["2.weight"].data.add_(1)
        told = hvd.rank() < 2  # the first rank, and the one that differs
        first = warned(trained.known)
        assert len(first) == told, first
        if told:
            assert "parameter 2.weight" in str(first[0].message) and first[0].filename.endswith("/audited.py"), first[0]
        assert not warned(lambda: [trained.step() for _ in range(3)])
        if hvd.rank() == 2:
            trained.optimizer.param_groups[0]["lr"] = 0.02
        second = warned(trained.known)
        assert len(second) == (hvd.rank() != 1) and all("option lr" in str(each.message) for each in second), second
        with raises(hvd.ReplicasDiffer, "option lr"):
            hvd.audit()
        trained.optimizer.param_groups[0]["lr"] = 0.01
        trained.make_equal()
        assert hvd.audit() is None
        assert not warned(trained.step)


def off_looks_only_when_asked():
    with session(AUDIT="off"):
        trained = Trained(torch.optim.SGD, {"lr": 0.01})
        if hvd.rank() == 1:
            trained.names["2.weight"].data.add_(1)
        assert not warned(trained.step)
        with raises(hvd.ReplicasDiffer, "parameter 2.weight"):
            hvd.audit()
        assert not warned(hvd.shutdown)


def begun():
    """A number that a look makes larger: of submissions, or of marks on the fake device, where they come later."""
    return devices.places.marks if MOST_LATER else hvd.counters()["submitted"]


def looks_of(trained, steps):
    """The steps that a look followed."""
    looks = []
    for step in range(1, steps + 1):
        trained.backward()
        trained.optimizer.synchronize()
        before = begun()
        trained.update()
        if begun() > before:
            looks.append(step)
    return looks


def looks_are_rare_and_follow_the_setting():
    first = [1, 8] if MOST_LATER else [1, 2, 4, 8, 10]  # no rank looks while a look is not known to all
    with session(AUDIT_EVERY=10):
        looks = looks_of(Trained(torch.optim.SGD, {"lr": 0.01}), 40)
        assert looks == [*first, 20, 30, 40], looks
    with session(AUDIT_EVERY=0):
        assert looks_of(Trained(torch.optim.SGD, {"lr": 0.01}), 20) == []
    with session(AUDIT_EVERY=10, AUDIT_PERMILLE=1):  # of a step that takes less than a look
        assert looks_of(Trained(torch.optim.SGD, {"lr": 0.01}), 100)[: len(first[:4])] == first[:4]
        assert len(looks_of(Trained(torch.optim.SGD, {"lr": 0.01}), 100)) < 8


def looks_leave_plans_as_they_are():
    with session():
        trained, seen = Trained(torch.optim.Adam, {"lr": 0.01}), []
        for _ in range(12):
            trained.step()
            seen.append(hvd.counters()["control"]["messages_with_names"])
        assert seen[5:] == [seen[5]] * 7, seen
        del trained


def updates_with_cross_barrier_are_looked_at():
    with session(AUDIT="raise"):
        trained = Trained(torch.optim.SGD, {"lr": 0.01}, cross_barrier=True)
        for _ in range(3):
            trained.step()
        trained.optimizer.synchronize()
        if hvd.rank() == 1:
            trained.names["2.bias"].data.add_(1)
        with raises(hvd.ReplicasDiffer, "parameter 2.bias", "rank 1 differs from ranks 0 and 2"):
            trained.known()
        trained.make_equal()


def compiled_steps_are_looked_at():
    with session(AUDIT="raise"):
        trained = Trained(torch.optim.Adam, {"lr": 0.01})
        trained.optimizer.step = torch.compile(trained.optimizer.step, backend="eager")
        for _ in range(3):
            trained.step()
        if hvd.rank() == 1:
            trained.names["2.bias"].data.add_(1)
        error = difference_of(trained.known)
        assert error.label == "parameter 2.bias" and is_between(error.between, 3, 4), error
        before, after = error.between
        assert before is None or f"Different after step {after}; equal after step {before}" in str(error), error
        del trained.optimizer.step
        trained.make_equal()


def a_look_continues_when_a_late_rank_has_come():
    with session(AUDIT="raise", AUDIT_WAIT_MS=200):
        trained = Trained(torch.optim.SGD, {"lr": 0.01})
        if hvd.rank() == 1:
            trained.names["2.bias"].data.add_(1)
            time.sleep(3)
        begin, errors = time.monotonic(), []
        trained.update()
        assert hvd.rank() == 1 or time.monotonic() - begin < 2.5
        for _ in range(10):
            try:
                trained.step()
            except hvd.ReplicasDiffer as error:
                errors.append((error.label, error.ranks, error.between))
        assert errors and errors[0] == ("parameter 2.bias", [1], (None, 1)), errors
        trained.make_equal()


def looks_that_a_rank_leaves_out_make_no_alarm():
    """Ranks 0 and 2 make steps without gradients while rank 1 has not begun."""
    with session(AUDIT="raise", AUDIT_WAIT_MS=100):
        trained = Trained(torch.optim.SGD, {"lr": 0.01})
        if hvd.rank() == 1:
            time.sleep(2)
        for _ in range(4):
            trained.update()
        for _ in range(20):
            trained.step()
        if hvd.rank() == 1:
            trained.names["2.bias"].data.add_(1)
        errors = []
        for _ in range(10):
            try:
                trained.step()
            except hvd.ReplicasDiffer as error:
                errors.append((error.label, error.ranks))
        assert errors and errors[0] == ("parameter 2.bias", [1]), errors
        trained.make_equal()


def ranks_that_joined_are_not_looked_at():
    with session(AUDIT="raise"):
        trained = Trained(torch.optim.SGD, {"lr": 0.01})
        trained.step()
        if hvd.rank() > 0:
            trained.step()
            if hvd.rank() == 2:
                trained.names["0.bias"].data.add_(1)
            with raises(hvd.ReplicasDiffer, "parameter 0.bias", "rank 2 differs from rank 1"):
                trained.known()
        last = hvd.join()
        trained.make_equal(last)
        for _ in range(3):  # ranks have made different numbers of steps
            trained.step()
        hvd.audit()
        if hvd.rank() == 0:
            trained.names["0.bias"].data.add_(1)
        with raises(hvd.ReplicasDiffer, "parameter 0.bias", "rank 0 differs from ranks 1 and 2"):
            trained.known()
        trained.make_equal(1)


def members_of_a_set_look_without_the_others():
    with session(AUDIT="raise"):
        pair = hvd.add_process_set([0, 2])
        trained = Trained(torch.optim.SGD, {"lr": 0.01}, process_set=pair)
        world = Trained(torch.optim.SGD, {"lr": 0.02}, seed=1)
        trained.step()
        if hvd.rank() == 2:
            trained.names["0.bias"].data.add_(1)
        if pair.included():
            with raises(hvd.ReplicasDiffer, "parameter 0.bias", "rank 2 differs from rank 0"):
                trained.known()
            with raises(hvd.ReplicasDiffer, "parameter 0.bias"):
                hvd.audit()
        else:
            trained.step()
            hvd.audit()
        world.step()
        if pair.included():
            hvd.broadcast_parameters(trained.model.state_dict(), 0, process_set=pair)
        hvd.audit()
        del trained
        hvd.barrier()
        hvd.remove_process_set(pair)


def shutdown_looks_once_more():
    with session(AUDIT_EVERY=1000):
        trained = Trained(torch.optim.SGD, {"lr": 0.01})
        for _ in range(5):
            trained.step()
        if hvd.rank() == 1:
            trained.names["2.weight"].data.add_(1)
        told = hvd.rank() < 2
        assert len(warned(hvd.shutdown)) == told
        assert not hvd.is_initialized()
    with session(AUDIT="raise", AUDIT_EVERY=1000):
        trained = Trained(torch.optim.SGD, {"lr": 0.01})
        trained.step()
        if hvd.rank() == 1:
            trained.names["2.weight"].data.add_(1)
        with raises(hvd.ReplicasDiffer, "parameter 2.weight"):
            hvd.shutdown()
        assert not hvd.is_initialized()


def shutdown_does_not_wait_for_a_late_rank():
    """The session's end itself waits for no rank, and an exception in flight skips the look."""
    with session(AUDIT_WAIT_MS=300):
        trained = Trained(torch.optim.SGD, {"lr": 0.01})
        trained.step()
        if hvd.rank() == 1:
            time.sleep(3)
        begin = time.monotonic()
        hvd.shutdown()
        assert time.monotonic() - begin < 2.5
    with session(AUDIT_WAIT_MS=60000):
        trained = Trained(torch.optim.SGD, {"lr": 0.01})
        trained.step()
        begin, fails = time.monotonic(), hvd.rank() == 0
        try:
            raise KeyError("in flight")
        except KeyError:
            if fails:
                hvd.shutdown()
        time.sleep(1)
        hvd.shutdown()
        assert time.monotonic() - begin < 30


gc.freeze()  # what is imported; hvd.audit() collects garbage
claims.check(
    what_ranks_may_hold_in_several_ways_is_equal,
    devices_of_other_numbers_are_no_difference,
    values_are_in_the_text,
    a_difference_is_warned_of_once,
    off_looks_only_when_asked,
    looks_are_rare_and_follow_the_setting,
    looks_leave_plans_as_they_are,
    updates_with_cross_barrier_are_looked_at,
    compiled_steps_are_looked_at,
    a_look_continues_when_a_late_rank_has_come,
    looks_that_a_rank_leaves_out_make_no_alarm,
    ranks_that_joined_are_not_looked_at,
    members_of_a_set_look_without_the_others,
    shutdown_looks_once_more,
    shutdown_does_not_wait_for_a_late_rank,
)
