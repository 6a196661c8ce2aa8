"""The start of a function of elastic.run on three ranks of a static job: all begin with the fields of rank 0."""

import warnings

import claims
import numpy
import torch
from claims import raises, same_bits

import horo.torch as horo
from horo import _default


def values_of(*parts):
    """Every tensor and number of modules, optimizers and schedulers, in one list."""
    found = []

    def take(value):
        if isinstance(value, torch.Tensor):
            found.append(value.detach().clone())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                take(value[key])
        elif isinstance(value, (list, tuple)):
            for one in value:
                take(one)
        elif isinstance(value, (int, float)):
            found.append(torch.tensor(value, dtype=torch.float64))

    for part in parts:
        take(part.state_dict() if hasattr(part, "state_dict") else part)
    return found


def started(state):
    """Calls a function of the State. Returns the texts of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        horo.elastic.run(lambda state: None)(state)
    return [str(one.message) for one in caught]


def check_equal_on_all_ranks(*parts):
    mine = values_of(*parts)
    for theirs in horo.allgather_object(mine):
        assert len(theirs) == len(mine)
        for a, b in zip(theirs, mine):
            same_bits(a, b)


def ranks_that_were_made_from_other_seeds_begin_with_rank_0():
    torch.manual_seed(horo.rank())
    model = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.BatchNorm1d(30), torch.nn.Linear(30, 1))
    optimizer = horo.DistributedOptimizer(torch.optim.AdamW(model.parameters()), model.named_parameters())
    array = numpy.full(3, horo.rank())
    of_0 = horo.broadcast_object(values_of(model), root_rank=0)
    state = horo.elastic.State(model=model, optimizer=optimizer, array=array, same=7)
    found = started(state)
    for a, b in zip(values_of(model), of_0):
        same_bits(a, b)
    assert state.model is model and state.array is array and not array.any()
    if horo.rank() == 0:
        assert found == [], found
    else:
        text = f"rank {horo.rank()} begins with the values of rank 0: its own differed in array, model of the State"
        assert found == [text], found


def what_rank_0_has_loaded_is_that_of_all():
    torch.manual_seed(3)
    model = torch.nn.Linear(5, 2)
    adam = torch.optim.AdamW(model.parameters(), lr=0.5 if horo.rank() else 0.25)
    optimizer = horo.DistributedOptimizer(adam, model.named_parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    if horo.rank() == 0:  # as from a file: moments, which the others do not have yet
        for one in adam.param_groups[0]["params"]:
            adam.state[one] = {"step": torch.tensor(4.0), "exp_avg": one.detach() * 2, "exp_avg_sq": one.detach() ** 2}
        schedule.last_epoch = 4
    state = horo.elastic.State(model=model, optimizer=optimizer, schedule=schedule, best=0.5 if horo.rank() else 0.75)
    found = started(state)
    assert state.best == 0.75 and optimizer.param_groups[0]["lr"] == 0.25 and schedule.last_epoch == 4
    check_equal_on_all_ranks(model, optimizer, schedule)
    assert len(found) == (0 if horo.rank() == 0 else 1), found


def one_rank_that_differs_is_mended_alone():
    model = torch.nn.Linear(5, 2)
    horo.broadcast_parameters(model.state_dict(), root_rank=0)
    if horo.rank() == 2:
        with torch.no_grad():
            model.weight[1, 3] += 1e-7
    found = started(horo.elastic.State(model=model))
    check_equal_on_all_ranks(model)
    assert len(found) == (1 if horo.rank() == 2 else 0), found


def ranks_that_are_equal_move_nothing():
    model = torch.nn.Linear(300, 300)
    horo.broadcast_parameters(model.state_dict(), root_rank=0)
    model.register_buffer("own", torch.full((3,), float(horo.rank())))  # per rank: it may differ
    session = _default.session()
    moved = []
    transfer, session.transfer = session.transfer, lambda *a: moved.append(a)
    assert started(horo.elastic.State(model=model)) == []
    session.transfer = transfer
    assert not moved and model.own[0] == horo.rank()


def another_shape_on_one_rank_is_an_error_of_all():
    state = horo.elastic.State(model=torch.nn.Linear(3, 4 if horo.rank() == 1 else 5))
    with raises(ValueError, "rank 1 has state.model.weight=float32[4, 3]", "rank 0 has state.model.weight=float32[5, "):
        started(state)
    with raises(ValueError, "rank 2 has state.model"):
        started(horo.elastic.State(model=torch.nn.Linear(3, 2), **({} if horo.rank() == 2 else {"best": 1.0})))


claims.check(
    ranks_that_were_made_from_other_seeds_begin_with_rank_0,
    what_rank_0_has_loaded_is_that_of_all,
    one_rank_that_differs_is_mended_alone,
    ranks_that_are_equal_move_nothing,
    another_shape_on_one_rank_is_an_error_of_all,
)
