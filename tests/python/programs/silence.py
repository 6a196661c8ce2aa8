"""Small gradients that come in the same order step after step: few hooks are left, and nothing else is different."""

import gc
import random
import sys

import claims
import torch
from claims import raises, same_bits
from small import COUNT, backward, check, counting, hooked, optimizer_of, params_of, silent, start_over, step, sum_of

import horo.torch as hvd
from horo.torch import bursts, silence


def those_that_come_alike_need_no_hooks():
    params, optimizer = silent("alike")
    few = hooked(params)
    with counting() as calls:
        for i in range(4):
            step(params, optimizer, i - 2.0)
    assert hooked(params) == few, "it stays so"
    assert calls["horo_submit_many_in_place"] == 4 * -(-COUNT // bursts.MOST), calls
    assert calls["horo_submit"] <= 4 * few, calls
    late = torch.nn.Parameter(torch.zeros(4))
    optimizer.add_param_group({"params": [late]})
    params["late"] = late
    assert hooked(params) == len(params)
    for i in range(7):
        step(params, optimizer, i + 1.0)
    assert hooked(params) < len(params) / 4
    del optimizer
    gc.collect()
    assert hooked(params) == 0


def what_was_there_before_backward_is_not_taken_for_complete():
    params, optimizer = silent("added")
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        backward(params)
        optimizer.synchronize()
        check(params)
        assert hooked(params) == COUNT, "zeros are as good as a gradient"
        with optimizer.skip_synchronize():
            optimizer.step()
    for i in range(30):  # not as soon as at first
        step(params, optimizer)
        assert i > 8 or hooked(params) == COUNT
    assert hooked(params) < COUNT / 4
    optimizer.zero_grad()
    for param in list(params.values())[::3]:
        param.grad = torch.full_like(param, 100.0)
    backward(params)
    optimizer.synchronize()
    for i, param in enumerate(params.values()):
        same_bits(param.grad, torch.full_like(param, sum_of(i) + (0 if i % 3 else 100.0 * hvd.size())))


def another_order_is_told_from_the_known_one():
    for to_none in (True, False):
        for seed in range(4):
            params, optimizer = silent(f"order {to_none} {seed}")
            everybody = list(enumerate(params.values()))
            for i in range(4):
                optimizer.zero_grad(set_to_none=to_none)
                backward(params, random.Random(100 * seed + 10 * i + hvd.rank()).sample(everybody, COUNT))
                optimizer.synchronize()
                check(params)
                with optimizer.skip_synchronize():
                    optimizer.step()
            assert hooked(params) == COUNT


def some_may_have_no_gradient():
    count = 3 * bursts.MOST
    for gone in (0, 1, bursts.MOST, bursts.MOST + 6, count - 2, count - 1):  # with hooks and without
        params, optimizer = silent(f"gone {gone}", count)
        rest = [pair for pair in enumerate(params.values()) if pair[0] != gone]
        for i in range(3):
            optimizer.zero_grad()
            backward(params, rest if hvd.rank() == 0 or i == 2 else None)
            optimizer.synchronize()
            for number, param in enumerate(params.values()):
                if number != gone:
                    same_bits(param.grad, torch.full_like(param, sum_of(number)))
                elif i == 2 or hvd.size() == 1:
                    assert param.grad is None
                else:
                    same_bits(param.grad, torch.full_like(param, sum_of(number, range(1, hvd.size()))))
            with optimizer.skip_synchronize():
                optimizer.step()
        assert hooked(params) == count
        for _ in range(2):
            step(params, optimizer)


def a_gradient_that_is_thrown_away_is_told_without_hooks():
    params, optimizer = silent("thrown", 70)
    victim = next(param for param in params.values() if not param._post_accumulate_grad_hooks)
    handle = victim.register_post_accumulate_grad_hook(lambda param: setattr(param, "grad", None))
    optimizer.zero_grad()
    with raises(RuntimeError, "gradient thrown", "is gone"):
        backward(params)
        optimizer.step()
    handle.remove()
    start_over(optimizer)
    step(params, optimizer)


def one_that_fails_half_way_leaves_nothing_behind():
    params, optimizer = silent("half")

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
    start_over(optimizer)
    for i in range(12):
        step(params, optimizer, i + 1.0)


def what_is_written_to_in_flight_is_told():
    for quiet in (False, True):
        params = params_of(f"written {quiet}", 70)
        params["large"] = torch.nn.Parameter(torch.zeros(bursts.SMALL_BYTES))
        optimizer = optimizer_of(params)
        for _ in range(6 if quiet else 1):
            step(params, optimizer)
        for name in (f"written {quiet} 0", f"written {quiet} 7", "large"):
            optimizer.zero_grad()
            backward(params)
            params[name].grad.mul_(0.5)
            with raises(hvd.HoroError, f"gradient {name} was written to on rank {hvd.rank()}", "synchronize()"):
                optimizer.step()
            step(params, optimizer)


def a_pass_too_many_is_told_without_hooks():
    params, optimizer = silent("pass")
    hookless = [param for param in params.values() if not param._post_accumulate_grad_hooks]
    optimizer.zero_grad()
    backward(params)
    hookless[5].sum().backward()
    with raises(hvd.HoroError, "gradient pass", "by another backward pass"):
        optimizer.step()
    step(params, optimizer)
    for _ in range(5):
        step(params, optimizer)
    optimizer.zero_grad()
    hookless[5].sum().backward()  # before all others: part of the sum
    backward(params)
    optimizer.synchronize()
    for i, param in enumerate(params.values()):
        same_bits(param.grad, torch.full_like(param, sum_of(i) + (hvd.size() if param is hookless[5] else 0)))


class Interrupt:
    """Raises KeyboardInterrupt as soon as a line of silence.py is reached for the so many-th time."""

    def __init__(self, line, visits):
        self._line, self._left = line, visits
        self.lines = set()

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename != silence.__file__:
            return None
        self.lines.add(frame.f_lineno)
        if event == "line" and frame.f_lineno == self._line:
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
        return self


def interrupted_steps(name, line, visits):
    """Steps of which one is interrupted there, and steps after it. Returns the lines that were reached."""
    params = params_of(name, 70)
    optimizer = optimizer_of(params)
    everybody = list(enumerate(params.values()))
    interrupt = Interrupt(line, visits)
    for orders in (6 * [everybody] + [everybody[::-1]] + 2 * [everybody], None):
        sys.settrace(interrupt if orders else None)
        for order in orders or 26 * [everybody]:
            try:
                optimizer.zero_grad()
                backward(params, order)
                optimizer.synchronize()
            except KeyboardInterrupt:
                start_over(optimizer)
                continue
            check(params)
    assert hooked(params) < 10, f"after an interrupt in line {line}, {visits}"
    return interrupt.lines


def an_interrupt_anywhere_costs_no_more_than_its_step():
    lines = interrupted_steps("lines", None, 0)
    assert len(lines) > 30, lines
    for line in sorted(lines):
        for visits in (1, 40):
            interrupted_steps(f"line {line} {visits}", line, visits)


claims.check(
    those_that_come_alike_need_no_hooks,
    what_was_there_before_backward_is_not_taken_for_complete,
    another_order_is_told_from_the_known_one,
    some_may_have_no_gradient,
    a_gradient_that_is_thrown_away_is_told_without_hooks,
    one_that_fails_half_way_leaves_nothing_behind,
    what_is_written_to_in_flight_is_told,
    a_pass_too_many_is_told_without_hooks,
    an_interrupt_anywhere_costs_no_more_than_its_step,
)
