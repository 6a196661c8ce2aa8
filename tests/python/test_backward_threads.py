"""Hooks that autograd runs in threads and on streams of devices, and what they need to wait for."""

import types

import pytest

torch = pytest.importorskip("torch")

from horo._specs import Spec  # noqa: E402
from horo.torch import devices  # noqa: E402
from horo.torch.groups import Group  # noqa: E402
from horo.torch.parameter_state import ParameterState  # noqa: E402
from horo.torch.round_state import RoundState  # noqa: E402


def test_hooks_in_threads_of_autograd_belong_to_the_backward_that_was_called(run_program):
    run_program("backward_threads", 2)


class FakePlaces(devices.Places):
    """All tensors are on device 0, whose current stream is `current`."""

    def __init__(self):
        self.current, self.done = "a", []

    def is_host(self, tensor):
        return False

    def number_of(self, tensor):
        return 0

    def stream_of(self, number):
        return self.current

    def record(self, number):
        return f"event {len(self.done)} of {self.current}"

    def follow(self, number, event):
        self.done.append(f"{self.current} waits for {event}")

    def hold(self, tensor):
        self.done.append(f"{self.current} holds {int(tensor)}")


@pytest.fixture
def places(monkeypatch):
    found = FakePlaces()
    monkeypatch.setattr(devices, "places", found)
    return found


class Submits:
    """A table with its session, and Payloads."""

    def __init__(self, places):
        self.session, self.places = self, places

    def part_of_unit(self, state, *_):
        self.places.done.append(f"{self.places.current} takes {int(state.param.grad)}")
        return (None, None, None, None), state.param.grad

    def submit_unit(self, name, parts):
        return range(1, 1 + len(parts))

    def add(self, *args, **more):
        pass


def done_by_a_group(places, streams):
    """What the submit of a group does whose gradients are complete on these streams, in this order."""
    states = [types.SimpleNamespace(param=torch.tensor(0.0), is_lent=False) for _ in streams]
    group = Group("group", states)
    for number, (state, places.current) in enumerate(zip(states, streams)):
        state.param.grad = torch.tensor(float(number))
        places.done.append("")
        assert group.arrive(state) == (number + 1 == len(states))
    places.done.clear()
    round_state = types.SimpleNamespace(has_reached=lambda state: True, is_absent=False)
    group.submit(Submits(places), Submits(places), round_state)
    return places.done


def test_a_group_waits_for_the_last_gradient_of_each_other_stream(places):
    assert done_by_a_group(places, "abacb") == [
        "b waits for event 3 of a",
        "b waits for event 4 of c",
        *(f"b holds {number}" for number in range(5)),
        *(f"b takes {number}" for number in range(5)),
    ]


def test_a_group_of_one_stream_waits_for_nothing(places):
    assert done_by_a_group(places, "aaa") == ["a takes 0", "a takes 1", "a takes 2"]


def state_of(value):
    """A parameter whose gradient is a result."""
    param = torch.nn.Parameter(torch.zeros(2))
    param.grad = torch.full((2,), value)
    state = ParameterState("weight", param, Spec("weight", 0))
    state.has_result = True
    return state


@pytest.fixture
def no_wait(monkeypatch):
    def wait(tensor):
        raise AssertionError("the host waits for the value of a tensor")

    monkeypatch.setattr(torch.Tensor, "__bool__", wait)


def test_a_backward_begins_without_a_wait_for_a_device(places, no_wait):
    states = [state_of(0.0), state_of(1.0)]
    round_state = RoundState(1, may_add=False)
    round_state.prepare(states)
    round_state.prepare(states)
    assert round_state.held == set(states)


def added_to(value, *changes):
    """Whether a backward is an error that adds to a result of this value, after the user has changed it so. Each change
    is followed by a backward that does not reach it."""
    state = state_of(value)
    round_state = RoundState(1, may_add=False)
    for change in changes:
        round_state.prepare([state])
        change(state)
    round_state.prepare([state])
    try:
        round_state.check_held([state])
    except RuntimeError as error:
        assert "adds to a gradient that is reduced already" in str(error)
        return True
    return False


def zeroed(state):
    state.param.grad.data.zero_()  # no version tells it


def gone(state):
    state.param.grad = None


def written(state):
    state.param.grad = torch.ones(2)


def reduced(state):
    state.has_result = True


@pytest.mark.parametrize("on_device", [False, True])
def test_a_result_that_was_zero_once_is_none_until_the_next_round(places, monkeypatch, on_device):
    monkeypatch.setattr(FakePlaces, "is_host", lambda *_: not on_device)
    assert added_to(1.0) and added_to(1.0, written)
    assert not any([added_to(0.0), added_to(1.0, zeroed), added_to(1.0, gone)])
    assert not any([added_to(0.0, written), added_to(1.0, zeroed, written), added_to(1.0, gone, written)])
    assert added_to(1.0, zeroed, written, reduced) and added_to(0.0, written, reduced)
