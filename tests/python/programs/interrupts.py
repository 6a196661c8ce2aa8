"""Asynchronous exceptions, as from a signal handler: no memory in flight is freed, and later calls work."""

import contextlib
import gc
import itertools
import signal
import weakref

import claims
import torch
from claims import raises, same_bits

import horo.torch as hvd
from horo import _default, _handles, _repeats, _session
from horo.torch import gradient_table


class Alarm(Exception):
    """The signal handler raises it."""


class AfterTheCall:
    """A library in which one function raises KeyboardInterrupt after its call."""

    def __init__(self, library, name):
        self._library, self._name = library, name

    def __getattr__(self, name):
        function = getattr(self._library, name)
        if name != self._name:
            return function

        def call(*arguments):
            function(*arguments)
            raise KeyboardInterrupt

        return call


class BeforeTheCall(AfterTheCall):
    """A library in which one function raises KeyboardInterrupt and does nothing."""

    def __getattr__(self, name):
        if name == self._name:
            raise KeyboardInterrupt
        return getattr(self._library, name)


@contextlib.contextmanager
def interrupted(module, name, how=AfterTheCall):
    library, module.quick = module.quick, how(module.quick, name)
    try:
        yield
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("no interrupt was raised")
    finally:
        module.quick = library


def one_after_the_other(first, then):
    """first() on rank 0, then() on rank 1 after a barrier: until the barrier, what rank 0 submits stays in flight."""
    if hvd.rank() == 0:
        first()
        hvd.barrier()
    else:
        hvd.barrier()
        then()
    hvd.barrier()


def start(tensor, name="again"):
    return hvd.allreduce_async_(tensor, name=name, op=hvd.Sum)


def interrupted_while_waiting(handle):
    def on_alarm(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with raises(Alarm):
            hvd.synchronize(handle)
    finally:
        signal.signal(signal.SIGALRM, before)


def an_exception_in_a_wait_frees_nothing_in_flight():
    hvd.synchronize(start(torch.ones(5)))  # the next call is a Repeat
    session = _default.session()
    for call in (start, lambda tensor: hvd.allreduce_async_(tensor, op=hvd.Sum)):

        def first(call=call):
            tensor = torch.ones(5)
            alive = weakref.ref(tensor.untyped_storage())
            handle = call(tensor)
            interrupted_while_waiting(handle)
            assert hvd.synchronize(handle) is None
            del tensor, handle
            gc.collect()
            assert alive() is not None
            alives.append(alive)

        alives = []
        one_after_the_other(first, lambda call=call: hvd.synchronize(call(torch.ones(5))))
        while session.dropped:
            session.sweep()
        gc.collect()
        assert all(alive() is None for alive in alives)
        same_bits(hvd.synchronize(start(torch.ones(5))), torch.full((5,), 2.0))


def an_interrupted_finalizer_drops_its_handle():
    class Interrupted(dict):
        def pop(self, *_):
            raise KeyboardInterrupt

    handle = start(torch.ones(5))
    session = _default.session()
    dropped = len(session.dropped)
    with contextlib.suppress(KeyboardInterrupt):
        _handles.Handle.__del__(handle, Interrupted(_handles._pending))
    assert len(session.dropped) == dropped + 1
    hvd.barrier()
    del handle
    same_bits(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), 2.0))


def an_interrupted_submit_keeps_its_memory():
    hvd.synchronize(start(torch.ones(5)))
    alives = []

    def first():
        tensor = torch.ones(5)
        alives.append(weakref.ref(tensor.untyped_storage()))
        # The library's function is a default argument of start().
        functions, _repeats.Repeat.start.__defaults__ = (
            _repeats.Repeat.start.__defaults__,
            (AfterTheCall(_repeats.quick, "horo_submit").horo_submit,),
        )
        with contextlib.suppress(KeyboardInterrupt):
            start(tensor)
        _repeats.Repeat.start.__defaults__ = functions
        del tensor
        gc.collect()
        assert alives[0]() is not None

    one_after_the_other(first, lambda: hvd.synchronize(start(torch.ones(5))))
    same_bits(hvd.synchronize(start(torch.ones(5))), torch.full((5,), 2.0))


def trained(name):
    param = torch.nn.Parameter(torch.zeros(5))
    return param, hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [(name, param)])


def step(param, optimizer):
    optimizer.zero_grad()
    before = param.detach().clone()
    param.sum().backward()
    optimizer.step()
    same_bits(param.detach(), before - 1)


def backward_interrupted_in_its_wait(param):
    session = _default.session()

    def wait(_):
        raise KeyboardInterrupt

    session.wait = wait
    with contextlib.suppress(KeyboardInterrupt):
        param.sum().backward()
    del session.wait


def an_interrupted_hook_keeps_its_gradient():
    param, optimizer = trained("hooked")

    def first():
        with interrupted(gradient_table, "horo_submit"):
            param.sum().backward()
        alive = weakref.ref(param.grad.untyped_storage())
        param.grad = None
        optimizer.set_backward_passes_per_step(1)  # begins a new step
        gc.collect()
        assert alive() is not None

    one_after_the_other(first, lambda: step(param, optimizer))


def an_interrupted_batch_keeps_its_gradients_and_is_collected():
    params = [torch.nn.Parameter(torch.zeros(5)) for _ in range(9)]
    named = [(f"batch {i}", param) for i, param in enumerate(params)]
    for known in (False, True):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=1.0), named)
        backward = lambda: sum(param.sum() for param in params).backward()  # noqa: E731
        for _ in range(2 if known else 0):
            backward()
            optimizer.step()
            optimizer.zero_grad()
        with interrupted(gradient_table, "horo_submit_many_in_place"):
            backward()
        optimizer.synchronize()
        assert all((param.grad == 1).all() for param in params)
        optimizer.zero_grad()
        with interrupted(gradient_table, "horo_submit_many_in_place"):
            backward()
        alive = [weakref.ref(param.grad.untyped_storage()) for param in params[1:]]
        for param in params:
            param.grad = None
        optimizer.set_backward_passes_per_step(1)  # begins a new step
        gc.collect()
        assert hvd.rank() == 1 or all(one() is not None for one in alive)
        del optimizer
        gc.collect()
        hvd.barrier()


def a_submit_that_was_interrupted_before_the_call_is_repeated():
    for name, count in (("horo_submit", 1), ("horo_submit_many_in_place", 9)):
        params = [torch.nn.Parameter(torch.zeros(5)) for _ in range(count)]
        named = [(f"before {name} {i}", param) for i, param in enumerate(params)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=1.0), named)
        for _ in range(3):
            optimizer.zero_grad()
            with interrupted(gradient_table, name, BeforeTheCall):
                sum((param * hvd.rank()).sum() for param in params).backward()
            optimizer.synchronize()
            assert all((param.grad == (hvd.size() - 1) / 2).all() for param in params)


def a_collected_optimizer_keeps_what_is_in_flight():
    def first():
        param, optimizer = trained("gone")
        backward_interrupted_in_its_wait(param)
        alive = weakref.ref(param.grad.untyped_storage())
        del param, optimizer
        gc.collect()
        assert alive() is not None

    one_after_the_other(first, lambda: step(*trained("gone")))


def an_interrupted_absent_submit_keeps_its_memory():
    param, optimizer = trained("absent")
    (state,) = optimizer._horo_gradients.declared.states
    step(param, optimizer)  # the layout of the gradient is known
    optimizer.zero_grad()

    def first():
        with interrupted(_session, "horo_submit_absent"):
            optimizer.synchronize()
        alive = weakref.ref(state.spare[0].untyped_storage())
        state.spare = None
        gc.collect()
        assert alive() is not None

    def then():
        param.sum().backward()
        optimizer.synchronize()

    one_after_the_other(first, then)


def the_next_step_releases_abandoned_works():
    param, optimizer = trained("abandoned")
    step(param, optimizer)
    optimizer.zero_grad()
    backward_interrupted_in_its_wait(param)
    optimizer.set_backward_passes_per_step(1)
    assert optimizer._horo_gradients._abandoned
    step(param, optimizer)
    assert not optimizer._horo_gradients._abandoned
    step(param, optimizer)
    assert not _default.session().dropped


def a_wait_that_was_interrupted_is_repeated():
    for repeat in ("synchronize", "step", "backward"):
        param, optimizer = trained(f"waiting {repeat}")
        backward_interrupted_in_its_wait(param)
        if repeat == "backward":
            param.sum().backward()
        elif repeat == "synchronize":
            optimizer.synchronize()
        optimizer.step()
        same_bits(param.detach(), torch.full((5,), -2.0 if repeat == "backward" else -1.0))


def a_step_may_follow_one_that_was_interrupted_in_an_exchange():
    """When the exchange of rounds has ended, or that of layouts: not always the same one on both ranks."""
    for places in itertools.product((0, 1), repeat=2):
        param, optimizer = trained(f"ending {places}")
        session, left = _default.session(), [places[hvd.rank()]]

        def release(works, session=session, left=left):
            left[0] -= 1
            if left[0] == -1:
                raise KeyboardInterrupt
            type(session).release(session, works)

        session.release = release
        with contextlib.suppress(KeyboardInterrupt):
            param.sum().backward()
        assert left[0] < 0
        del session.release
        optimizer.step()
        for _ in range(3):
            step(param, optimizer)


def an_interrupted_delivery_is_repeated():
    class Interrupting(hvd.Compressor):
        calls = 0

        @staticmethod
        def compress(tensor):
            return tensor, None

        @classmethod
        def decompress(cls, tensor, _):
            cls.calls += 1
            if cls.calls == 1:
                raise KeyboardInterrupt
            return tensor

    param = torch.nn.Parameter(torch.zeros(5))
    sgd = torch.optim.SGD([param], lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, [("again", param)], compression=Interrupting)
    with contextlib.suppress(KeyboardInterrupt):
        if hvd.rank() == 0:
            param.sum().backward()
        else:
            optimizer.step()
    optimizer.step()
    same_bits(param.detach(), torch.full((5,), -0.5))


claims.check(
    an_exception_in_a_wait_frees_nothing_in_flight,
    an_interrupted_finalizer_drops_its_handle,
    an_interrupted_submit_keeps_its_memory,
    an_interrupted_hook_keeps_its_gradient,
    an_interrupted_batch_keeps_its_gradients_and_is_collected,
    a_submit_that_was_interrupted_before_the_call_is_repeated,
    a_collected_optimizer_keeps_what_is_in_flight,
    an_interrupted_absent_submit_keeps_its_memory,
    the_next_step_releases_abandoned_works,
    a_wait_that_was_interrupted_is_repeated,
    a_step_may_follow_one_that_was_interrupted_in_an_exchange,
    an_interrupted_delivery_is_repeated,
)
