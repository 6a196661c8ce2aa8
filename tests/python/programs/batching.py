"""Batches of small gradients: results equal those of single submits, also when batches differ from step to step."""

import random

import claims
import torch
from claims import raises, same_bits
from small import COUNT, backward, check, counting, optimizer_of, params_of, start_over, step, sum_of

import horo.torch as hvd
from horo.torch import batching


def one_call_submits_dozens():
    params = params_of("dozens")
    with counting() as calls:
        optimizer = optimizer_of(params)
        for i in range(4):
            before = dict(calls)
            step(params, optimizer, i + 1.0)
            assert calls["horo_submit"] - before["horo_submit"] <= -(-COUNT // batching.MAX_COUNT) + 1, calls
            assert calls["horo_submit_many_in_place"] - before["horo_submit_many_in_place"] <= 4, calls


def a_batch_is_limited_in_bytes():
    params = {f"sooner {i}": torch.nn.Parameter(torch.zeros(batching.SMALL_BYTES // 4)) for i in range(100)}
    with counting() as calls:
        optimizer = optimizer_of(params)
        step(params, optimizer)
    assert calls["horo_submit_many_in_place"] == 100 * batching.SMALL_BYTES // batching.MAX_BYTES + 1, calls


def the_last_batch_is_submitted_in_backward():
    params = params_of("last", batching.MAX_COUNT)
    optimizer = optimizer_of(params)
    gradients = optimizer._horo_gradients
    submit_rest, waiting = gradients.submit_rest, []

    def watched():
        waiting.append(len(gradients.declared.batching.ready))
        submit_rest()

    gradients.submit_rest = watched
    for _ in range(3):
        optimizer.zero_grad()
        used = list(enumerate(params.values()))
        backward(params, [used[1], used[0], *used[2:]])  # the last one follows the one that submits the batch
        check(params)
    assert waiting == [1, 0, 0], waiting


def steps_may_differ():
    for views in (False, True):
        params = params_of(f"differ {views}")
        optimizer = optimizer_of(params, gradient_as_bucket_view=views)
        everything = list(enumerate(params.values()))
        for number in range(12):
            mine = [everything] * hvd.size()
            if number % 3:
                draw = [random.Random(100 * number + rank) for rank in range(hvd.size())]
                mine = [one.sample(everything, one.randrange(1, COUNT)) for one in draw]
            optimizer.zero_grad()
            backward(params, mine[hvd.rank()])
            optimizer.synchronize()
            have = [{i for i, _ in used} for used in mine]
            for i, param in everything:
                ranks = [rank for rank in range(hvd.size()) if i in have[rank]]
                if ranks:
                    same_bits(param.grad, torch.full_like(param, sum_of(i, ranks)))
                else:
                    assert param.grad is None
            with optimizer.skip_synchronize():
                optimizer.step()


def several_passes_make_one_gradient():
    params = params_of("passes")
    optimizer = optimizer_of(params, backward_passes_per_step=3)
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(3):
            backward(params)
        optimizer.synchronize()
        check(params, 3.0)
    optimizer.set_backward_passes_per_step(1)
    for _ in range(3):
        step(params, optimizer)
    optimizer.set_backward_passes_per_step(2)
    optimizer.zero_grad()
    backward(params)
    backward(params)
    optimizer.synchronize()
    check(params, 2.0)
    few = list(enumerate(params.values()))[1:4]  # these are batched, and no hook submits the batch
    for param in params.values():
        param.grad = None
    backward(params, few)
    backward(params, few)
    optimizer.synchronize()
    for i, param in enumerate(params.values()):
        assert (param.grad is None) == (not 1 <= i < 4)
        assert param.grad is None or (param.grad == 2 * sum_of(i)).all()


def a_backward_that_adds_to_a_sum_is_an_error():
    params = params_of("twice")
    optimizer = optimizer_of(params)
    for known in (False, True):
        optimizer.zero_grad()
        backward(params)
        with raises(RuntimeError, "gradient twice", "no_sync()"):
            backward(params)
        for _ in range(2 if known else 1):
            step(params, optimizer)


def other_gradients_are_submitted_alone():
    params = params_of("odd", 10)
    params["lying"] = torch.nn.Parameter(torch.zeros(3, 4).t())
    table = torch.nn.Embedding(5, 3, sparse=True)
    params["sparse"] = table.weight
    params["numbers"] = torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    plain = {name: param for name, param in params.items() if name.startswith("odd")}
    with counting() as calls:
        optimizer = optimizer_of(params)
        for _ in range(3):
            before = dict(calls)
            optimizer.zero_grad()
            loss = params["lying"][0].sum() * hvd.rank() + (params["numbers"].conj() * 1j).imag.sum()
            (loss + table(torch.tensor([1, hvd.rank()])).sum()).backward()
            backward(plain)
            optimizer.synchronize()
            check(plain)
            expected = torch.zeros(4, 3)
            expected[0] = sum_of(0)
            assert torch.equal(params["lying"].grad, expected)
            rows = torch.zeros(5, 3)
            rows[1] += hvd.size()
            for rank in range(hvd.size()):
                rows[rank] += 1
            assert torch.equal(table.weight.grad.to_dense(), rows)
            lazy = params["numbers"].grad
            assert torch.equal(lazy.resolve_conj().real, torch.full((3,), float(hvd.size())))
    assert calls["horo_submit_many_in_place"] > before["horo_submit_many_in_place"], (
        "the other gradients are in one batch again"
    )


def in_flight(params, optimizer, change):
    """A backward in which a hook changes gradients after their submit."""
    step(params, optimizer)
    optimizer.zero_grad()
    gradients = optimizer._horo_gradients
    submit_rest = gradients.submit_rest

    def changing():
        submit_rest()
        change()

    gradients.submit_rest = changing
    try:
        backward(params)
    finally:
        gradients.submit_rest = submit_rest


def a_gradient_may_be_dropped_or_replaced_in_flight():
    params = params_of("replaced", 70)
    optimizer = optimizer_of(params)
    step(params, optimizer)
    param = params["replaced 7"]
    for change in (lambda: setattr(param, "grad", None), lambda: setattr(param, "grad", torch.full_like(param, 3.0))):
        in_flight(params, optimizer, change)
        check(params)
    with raises(hvd.HoroError, "gradient replaced 7", "resized or replaced"):
        in_flight(params, optimizer, lambda: setattr(param.grad, "data", torch.zeros(100)))
    step(params, optimizer)


def a_gradient_dropped_before_the_submit_is_an_error():
    params = params_of("gone", 70)
    optimizer = optimizer_of(params)
    step(params, optimizer)
    handle = params["gone 7"].register_post_accumulate_grad_hook(lambda param: setattr(param, "grad", None))
    optimizer.zero_grad()
    with raises(RuntimeError, "gradient gone 7 is gone"):
        backward(params)
        optimizer.step()
    handle.remove()
    start_over(optimizer)
    step(params, optimizer)


def another_shape_with_the_same_number_of_elements_is_an_error():
    params = params_of("shape", 70)
    optimizer = optimizer_of(params)
    for _ in range(3):
        step(params, optimizer)
    other = params["shape 7"]
    optimizer.zero_grad()
    other.data = other.data.view(2, 2)
    with raises(ValueError, "gradient shape 7 is torch.float32 [2, 2]", "expected torch.float32 [4]"):
        backward(params)
        optimizer.step()
    other.grad = None
    other.data = other.data.view(4)
    start_over(optimizer)
    step(params, optimizer)


def parameters_may_be_added_later():
    params = params_of("early")
    optimizer = optimizer_of(params)
    step(params, optimizer)
    late = torch.nn.Parameter(torch.zeros(4))
    optimizer.add_param_group({"params": [late]})
    for _ in range(3):
        step({**params, "late": late}, optimizer)


def another_session_reduces_the_same_parameters():
    params = params_of("again")
    optimizer = optimizer_of(params)
    for _ in range(2):
        step(params, optimizer)
    hvd.shutdown()
    hvd.init()
    for _ in range(2):
        step(params, optimizer)


def another_order_is_another_batch():
    for to_none in (True, False):
        params = params_of(f"order {to_none}")
        optimizer = optimizer_of(params)
        for _ in range(3):
            step(params, optimizer)
        pairs = list(enumerate(params.values()))
        for i in range(6):
            optimizer.zero_grad(set_to_none=to_none)
            backward(params, random.Random(10 * i + hvd.rank()).sample(pairs, COUNT))
            optimizer.synchronize()
            check(params)
            with optimizer.skip_synchronize():
                optimizer.step()


def what_is_in_a_gradient_before_backward_is_part_of_the_sum():
    params = params_of("added")
    optimizer = optimizer_of(params)
    for _ in range(3):
        step(params, optimizer)
    optimizer.zero_grad()
    for param in list(params.values())[::3]:
        param.grad = torch.full_like(param, 100.0)
    backward(params)
    optimizer.synchronize()
    for i, param in enumerate(params.values()):
        same_bits(param.grad, torch.full_like(param, sum_of(i) + (0 if i % 3 else 100.0 * hvd.size())))


def a_backward_that_fails_half_way_leaves_nothing_behind():
    params = params_of("half")
    optimizer = optimizer_of(params)
    for _ in range(3):
        step(params, optimizer)

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(context, value):
            return value.clone()

        @staticmethod
        def backward(context, gradient):
            raise ArithmeticError("half way")

    optimizer.zero_grad()
    loss = Fails.apply(sum(param.sum() for param in list(params.values())[:90]))
    for param in list(params.values())[90:]:
        loss = loss + param.sum()
    with raises(ArithmeticError, "half way"):
        loss.backward()
    for i in range(4):
        step(params, optimizer, i + 1.0)


def a_write_in_flight_is_an_error():
    params = params_of("written", 70)
    params["large"] = torch.nn.Parameter(torch.zeros(batching.SMALL_BYTES))
    optimizer = optimizer_of(params)
    step(params, optimizer)
    for name in ("written 0", "written 7", "large"):
        with raises(hvd.HoroError, f"gradient {name} was written to on rank {hvd.rank()}", "after backward()"):
            in_flight(params, optimizer, lambda name=name: params[name].grad.mul_(0.5))
        step(params, optimizer)


def parameters_may_be_frozen_for_some_steps():
    """After backward or before it; a frozen parameter has no gradient after zero_grad()."""
    for between in (False, True):
        params = params_of(f"frozen {between}")
        optimizer = optimizer_of(params)
        half = list(params.values())[COUNT // 3 :]
        for number in range(9):
            frozen = 3 <= number < 6
            if number in (3, 6) and not between:
                [param.requires_grad_(not frozen) for param in half]
            optimizer.zero_grad()
            backward(params)
            if number in (2, 5) and between:
                [param.requires_grad_(number == 5) for param in half]
            optimizer.step()
            for i, param in enumerate(params.values()):
                if frozen and i >= COUNT // 3:
                    assert param.grad is None
                else:
                    same_bits(param.grad, torch.full_like(param, sum_of(i)))


claims.check(
    one_call_submits_dozens,
    a_batch_is_limited_in_bytes,
    the_last_batch_is_submitted_in_backward,
    steps_may_differ,
    several_passes_make_one_gradient,
    a_backward_that_adds_to_a_sum_is_an_error,
    other_gradients_are_submitted_alone,
    a_gradient_may_be_dropped_or_replaced_in_flight,
    a_gradient_dropped_before_the_submit_is_an_error,
    another_shape_with_the_same_number_of_elements_is_an_error,
    parameters_may_be_added_later,
    another_order_is_another_batch,
    what_is_in_a_gradient_before_backward_is_part_of_the_sum,
    a_backward_that_fails_half_way_leaves_nothing_behind,
    a_write_in_flight_is_an_error,
    parameters_may_be_frozen_for_some_steps,
    another_session_reduces_the_same_parameters,
)
