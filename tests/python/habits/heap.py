"""What frees memory while gradients are in flight: exceptions, finalizers, the garbage collector, deleted optimizers.

Rank 0 is late, so the other ranks' gradients are in flight at that time. tools/asan_python runs these under ASan.
"""

import gc
import time

import torch

import horo.torch as hvd

WIDTHS = 150, 150, 150, 3  # the matrices are too large for a batch, the vectors travel in one


def _disturbed(job, disturb, caught=(), **options):
    """Trains; then a hook of the first layer calls disturb(model, optimizers) while the last layer's gradients are in
    flight; then trains again. caught: exceptions that backward may raise."""
    model = job.net(*WIDTHS)
    optimizers = [job.wrap(job.sgd(model, lr=0.01), model, **options)]
    job.train(model, optimizers[0], 3)
    if job.is_oracle:
        optimizers[0].zero_grad()
        job.train(model, optimizers[0], 3, first=3)
        return model
    for turn in range(3):
        optimizers[0].zero_grad()
        hook = model[2].bias.register_hook(lambda _: _disturb(job, disturb, model, optimizers))
        try:
            job.backward(job.regression(model, 60 + turn))
        except caught:
            pass
        hook.remove()
        _churn(model)
    job.agree()
    if not optimizers:
        optimizers.append(job.wrap(job.sgd(model, lr=0.01), model))
    optimizers[0].zero_grad()
    job.train(model, optimizers[0], 3, first=3)
    return model


def _disturb(job, disturb, model, optimizers):
    if job.rank == 0:
        time.sleep(0.1)
    disturb(model, optimizers)
    _churn(model, drop=False)


def _churn(model, drop=True):
    """Frees gradients, and writes to what the allocator hands out next."""
    if drop:
        for param in model.parameters():
            param.grad = None
    gc.collect()
    for param in model.parameters():
        torch.full_like(param, float("nan"))


class _Stop(BaseException):
    """As KeyboardInterrupt."""


def _raises(error):
    def disturb(_model, _optimizers):
        raise error("planned")

    return disturb


def habit_an_exception_with_gradients_in_flight(job):
    return _disturbed(job, _raises(ArithmeticError), caught=ArithmeticError)


def habit_an_exception_with_gradients_in_flight_in_views(job):
    return _disturbed(job, _raises(ArithmeticError), caught=ArithmeticError, gradient_as_bucket_view=True)


def habit_an_exception_with_gradients_in_flight_in_groups(job):
    return _disturbed(job, _raises(ArithmeticError), caught=ArithmeticError, num_groups=2)


def habit_an_interrupt_with_gradients_in_flight(job):
    return _disturbed(job, _raises(_Stop), caught=_Stop)


def habit_an_interrupt_with_gradients_in_flight_in_views(job):
    return _disturbed(job, _raises(_Stop), caught=_Stop, gradient_as_bucket_view=True)


def habit_gradients_are_dropped_in_flight(job):
    """A hook sets p.grad to None while the gradient is in flight: an error that names it, or no harm."""

    def drop(model, _):
        model[-1].weight.grad = None

    return _disturbed(job, drop, caught=Exception)


def habit_gradients_are_dropped_in_flight_in_views(job):
    def drop(model, _):
        model[-1].weight.grad = None

    return _disturbed(job, drop, caught=Exception, gradient_as_bucket_view=True)


def habit_collections_in_flight(job):
    return _disturbed(job, lambda *_: gc.collect())


def _deleted(job, **options):
    """The last reference to the optimizer goes while its gradients are in flight."""
    if not job.is_oracle:
        model = job.net(*WIDTHS)
        optimizers = [job.wrap(job.sgd(model, lr=0.01), model, **options)]
        job.train(model, optimizers[0], 3)
        optimizers[0].zero_grad()
        hook = model[2].bias.register_hook(lambda _: _disturb(job, lambda *_: optimizers.clear(), model, optimizers))
        try:
            job.backward(job.regression(model, 60))
        except Exception as error:
            assert "optimizer" in str(error), error
        hook.remove()
        _churn(model)
        job.agree()
        del hook, model
    again = job.net(*WIDTHS)
    optimizer = job.wrap(
        job.sgd(again, lr=0.01), [(f"again.{name}", param) for name, param in again.named_parameters()]
    )
    job.train(again, optimizer, 3)
    return again


def habit_the_optimizer_is_deleted_in_flight(job):
    return _deleted(job)


def habit_the_optimizer_is_deleted_in_flight_in_views(job):
    return _deleted(job, gradient_as_bucket_view=True)


def _frozen(job, **options):
    """Layers are frozen after some steps, the last one too, and their gradients are freed."""
    model = job.net(*WIDTHS)
    optimizer = job.wrap(job.sgd(model, lr=0.01), model, **options)
    for phase in range(6):
        for i, layer in enumerate([model[0], model[2], model[4]]):
            layer.requires_grad_(phase in (0, 3) or phase % 3 == i)
        optimizer.zero_grad()
        job.train(model, optimizer, 2, first=2 * phase)
        if not job.is_oracle:
            _churn(model)
    return model


def habit_frozen_gradients_are_freed(job):
    return _frozen(job)


def habit_frozen_gradients_are_freed_in_views(job):
    return _frozen(job, gradient_as_bucket_view=True)


def habit_frozen_gradients_are_freed_in_groups(job):
    return _frozen(job, num_groups=2)


def habit_a_layer_is_frozen_in_flight(job):
    """A hook freezes the last layer while its gradients are in flight."""

    def freeze(model, _):
        model[-1].requires_grad_(False)

    def thaw_and_train(job):
        model = _disturbed(job, freeze, caught=Exception)
        model.requires_grad_(True)
        return model

    return thaw_and_train(job) if not job.is_oracle else _frozen_oracle(job)


def _frozen_oracle(job):
    """The last layer stays frozen after the hook."""
    model = job.net(*WIDTHS)
    optimizer = job.wrap(job.sgd(model, lr=0.01), model)
    job.train(model, optimizer, 3)
    optimizer.zero_grad()
    model[-1].requires_grad_(False)
    job.train(model, optimizer, 3, first=3)
    return model


def habit_sessions_end_in_flight(job):
    """A hook ends the session while gradients are in flight, and a new one begins."""

    def end(_model, _optimizers):
        hvd.shutdown()
        hvd.init(settings=job.settings)

    return _disturbed(job, end, caught=Exception)


def habit_handles_are_dropped_in_flight(job):
    if not job.is_oracle:
        for i in range(20):
            tensors = [torch.full((40000,), float(job.rank)) for _ in range(4)]
            if job.rank == 0:
                time.sleep(0.01)
            handles = [hvd.allreduce_async_(tensor, name=f"dropped {i} {j}") for j, tensor in enumerate(tensors)]
            del tensors, handles
            gc.collect()
            torch.full((40000,), float("nan"))
            hvd.barrier()
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 2)
    return model


def habit_a_closed_cycle_of_optimizer_and_model(job):
    """The collector finds both at once, in any order, between steps."""
    for seed in range(6):
        model = job.net(*WIDTHS, seed=seed)
        optimizer = job.wrap(job.sgd(model, lr=0.01), [(f"{seed}.{n}", p) for n, p in model.named_parameters()])
        model.optimizer, optimizer.model = [optimizer], model
        job.train(model, optimizer, 2)
        if job.is_oracle:
            job.forget(optimizer)
        else:
            result = {name: param.detach().clone() for name, param in model.named_parameters()}
            del model, optimizer
            gc.collect()
    return model if job.is_oracle else result
