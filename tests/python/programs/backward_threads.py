"""Backward in threads of autograd's own. It has one for each GPU; on a CPU it has them for deep nesting."""

import contextlib
import threading

import claims
import torch
from torch.utils.checkpoint import checkpoint

import horo.torch as hvd
from horo.torch import rounds, streams

PAST_THE_WRAPPER = torch.autograd.backward
DEPTH = 70  # autograd nests 60 calls in one thread
WAIT_S = 60
SHORT_S = 0.2  # in which a hook that waits for nothing has run; more only where a test would fail


class Nested(torch.autograd.Function):
    """Its backward nests further ones, and calls call() in the innermost one."""

    @staticmethod
    def forward(ctx, x, call, depth):
        ctx.call, ctx.depth = call, depth
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            if ctx.depth == 0:
                ctx.call()
            else:
                x = torch.zeros((), requires_grad=True)
                PAST_THE_WRAPPER(Nested.apply(x, ctx.call, ctx.depth - 1))
        return gradient, None, None


def in_autograd(call):
    """Runs call() in a thread of autograd's own, while it works for a backward of the calling thread."""
    caller = threading.get_ident()

    def run():
        assert threading.get_ident() != caller, "autograd has used the calling thread"
        call()

    Nested.apply(torch.zeros((), requires_grad=True), run, DEPTH).backward()


def in_threads(*calls):
    """Runs each call in a thread. Raises the first exception."""
    raised = []

    def guarded(call):
        try:
            call()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=[call], daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def distributed(model, **options):
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.01), model.named_parameters(), **options)


def layer(number=0):
    torch.manual_seed(number)
    return torch.nn.Linear(200, 200)  # large: its weight has a hook of its own


def mine(*shape):
    return torch.full(shape, hvd.rank() + 1.0)


AVERAGE = (1 + 2) / 2


def checkpoints_may_share_a_parameter_in_a_thread_of_autograd():
    model = layer()
    optimizer = distributed(model)
    for _ in range(3):
        optimizer.zero_grad()

        def loss():
            x = mine(4, 200).requires_grad_()
            for _ in range(2):
                x = checkpoint(model, x, use_reentrant=True)
            return x.sum()

        local = [
            gradient.clone()
            for gradient in torch.autograd.grad(model(model(mine(4, 200))).sum(), [*model.parameters()])
        ]
        in_autograd(lambda: PAST_THE_WRAPPER(loss()))
        for number, (param, gradient) in enumerate(zip(model.parameters(), local)):
            torch.testing.assert_close(param.grad, hvd.allreduce(gradient, name=f"expected {number}"))
        optimizer.step()


def the_only_backward_is_found_without_the_storage_of_torch():
    streams.CARRIES = False
    try:
        checkpoints_may_share_a_parameter_in_a_thread_of_autograd()
    finally:
        streams.CARRIES = True


def two_threads_end_their_rounds_themselves():
    both = threading.Barrier(2)
    models = [layer(number) for number in range(2)]
    optimizers = [distributed(model) for model in models]

    def train(model, optimizer):
        gradients = optimizer._horo_gradients

        def backward():
            both.wait(WAIT_S)  # both threads are in backward
            PAST_THE_WRAPPER((model.weight * mine(200, 200)).sum() + (model.bias * mine(200)).sum())
            assert gradients.round.number == 0, "the round has ended in a thread of autograd"
            assert gradients.declared.stream.thread is caller
            both.wait(WAIT_S)

        caller = streams.own_thread()
        try:
            for _ in range(3):
                optimizer.zero_grad()
                in_autograd(backward)
                assert gradients.declared.stream.companions() == [gradients.declared.stream.number]
                assert (model.weight.grad == AVERAGE).all() and (model.bias.grad == AVERAGE).all()
                optimizer.step()
        except BaseException:
            both.abort()
            raise

    in_threads(*(lambda pair=pair: train(*pair) for pair in zip(models, optimizers)))


def a_backward_past_the_wrapper_is_its_own_beside_another_thread():
    in_hook, may_go_on = threading.Event(), threading.Event()
    models = [layer(number) for number in range(2)]
    optimizers = [distributed(model) for model in models]
    other, model = models

    def wait(_):
        in_hook.set()
        assert may_go_on.wait(WAIT_S)

    def run_other():
        handle = other.weight.register_post_accumulate_grad_hook(wait)
        (other.weight * mine(200, 200)).sum().backward()
        handle.remove()
        assert (other.weight.grad == AVERAGE).all()

    def run():
        assert in_hook.wait(WAIT_S)
        try:
            PAST_THE_WRAPPER((model.weight * mine(200, 200)).sum())
            assert (model.weight.grad == AVERAGE).all(), "the gradient is not reduced"
        finally:
            may_go_on.set()

    in_threads(run_other, run)
    del optimizers


def a_hook_works_for_the_thread_that_has_called_backward():
    model, seen = layer(), []
    optimizer = distributed(model)
    model.weight.register_post_accumulate_grad_hook(
        lambda _: seen.append((streams.this_thread(), rounds._spec(0, [1]).name))
    )
    in_autograd(lambda: PAST_THE_WRAPPER(model.weight.sum()))
    assert streams.own_thread().is_main
    assert seen == [(streams.own_thread(), "rounds of optimizers")], seen
    in_threads(lambda: in_autograd(lambda: PAST_THE_WRAPPER(model.weight.sum())))
    assert not seen[1][0].is_main and seen[1][1] != "rounds of optimizers", seen
    optimizer.zero_grad()


def nothing_is_left_of_a_backward_that_raised():
    model, found = layer(), []
    optimizer = distributed(model)
    gradients = optimizer._horo_gradients

    def fail():
        found.append(rounds.current())
        raise ArithmeticError("of the script")

    def hook_is_late():
        streams.carry(found[0])
        try:
            with claims.raises(RuntimeError, "complete after its backward has raised"):
                gradients.hooks()[0](model.weight)
        finally:
            streams.carry(None)

    with claims.raises(ArithmeticError, "of the script"):
        in_autograd(fail)
    assert streams.carried() is None and streams.own_thread().backward is None and not rounds._active
    model.weight.grad = torch.ones(200, 200)
    in_threads(hook_is_late)
    assert not gradients.has_begun() and gradients.round.running is None


@contextlib.contextmanager
def interleaved(owner, name, call):
    """Another thread runs call() within the first call of a method, as far as it comes. Yields a list: for each call of
    the method, whether the thread has waited for something."""
    method, waited = getattr(owner, name), []
    thread = threading.Thread(target=call, daemon=True)

    def replaced(*args):
        if not waited:
            thread.start()
            thread.join(SHORT_S)
        waited.append(thread.is_alive())
        return method(*args)

    setattr(owner, name, replaced)
    try:
        yield waited
    finally:
        thread.join()
        delattr(owner, name)


def hooks_of_two_devices(name, second):
    """A hook runs, and in this method of DeclaredParameters another thread runs second(gradients, the other parameter).
    Returns what interleaved() yields."""
    model, raised = layer(), []
    optimizer = distributed(model)
    gradients, running = optimizer._horo_gradients, rounds.BackwardPass()
    for param in model.parameters():
        param.grad = mine(2, *param.shape)[0]  # not submitted in place, as on a device
        gradients.declared.hooks.set(gradients.declared.by_param[id(param)], batched=False)

    def run(hook, *args):
        streams.carry(running)
        try:
            hook(*args)
        except RuntimeError as error:
            raised.append(error)
        finally:
            streams.carry(None)

    weight, bias = model.parameters()
    with interleaved(gradients.declared, name, lambda: run(second, gradients, bias)) as waited:
        run(gradients.hooks()[0], weight)
    running.is_active = False
    assert not raised, raised
    rounds.end(running)
    assert (weight.grad == AVERAGE).all() and (bias.grad == AVERAGE).all()
    return waited


def run_hook(gradients, param):
    gradients.hooks()[1](param)


def submit(gradients, param):
    """What a hook does that has entered the round already."""
    gradients.submit(gradients.declared.by_param[id(param)], param.grad)


def hooks_of_two_devices_enter_a_round_one_after_the_other():
    assert hooks_of_two_devices("wake", run_hook) == [True]


def hooks_of_two_devices_open_a_round_once():
    assert hooks_of_two_devices("update_names", submit) == [True]


claims.check(
    checkpoints_may_share_a_parameter_in_a_thread_of_autograd,
    the_only_backward_is_found_without_the_storage_of_torch,
    two_threads_end_their_rounds_themselves,
    a_backward_past_the_wrapper_is_its_own_beside_another_thread,
    a_hook_works_for_the_thread_that_has_called_backward,
    nothing_is_left_of_a_backward_that_raised,
    hooks_of_two_devices_enter_a_round_one_after_the_other,
    hooks_of_two_devices_open_a_round_once,
)
