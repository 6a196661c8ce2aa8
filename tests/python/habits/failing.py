"""What goes wrong in scripts: exceptions in backward, interrupts, ranks that do more than others, threads."""

import signal
import time

import torch
from job import mse

import horo.torch as hvd


class _Fails(torch.autograd.Function):
    """The identity. Its backward raises the exception given, if there is one."""

    @staticmethod
    def forward(ctx, x, error):
        ctx.error = error
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        error, ctx.error = ctx.error, None  # a graph that keeps its exception is never freed
        if error is not None:
            raise error
        return gradient, None


def _loss_that_fails(job, model, error):
    """The gradients of the last layer are complete when the exception is raised, and those of the first are not."""
    hidden = _Fails.apply(torch.tanh(model[0](job.data(job.rank, 7, 5, 4))), error)
    return (model[2](hidden) ** 2).mean()


def _caught(job, ranks, error_of, parts, **options):
    """Backward fails on some ranks; the script catches that on all ranks, and goes on."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model, **options)
    job.train(model, optimizer, 2)
    optimizer.zero_grad()
    if not job.is_oracle:
        error = error_of() if job.rank in ranks else None
        job.expect(lambda: _loss_that_fails(job, model, error).backward(), *([] if job.rank in ranks else parts))
        job.agree()
    optimizer.zero_grad()
    job.train(model, optimizer, 3, first=2)
    return model


def _planned():
    return ArithmeticError("the loss of batch 7 is not a number")


def habit_backward_fails_on_all_ranks(job):
    return _caught(job, (0, 1, 2), _planned, [])


def habit_backward_fails_on_all_ranks_with_bucket_views(job):
    return _caught(job, (0, 1, 2), _planned, [], gradient_as_bucket_view=True)


def habit_backward_fails_on_all_ranks_in_groups(job):
    return _caught(job, (0, 1, 2), _planned, [], num_groups=2)


def habit_backward_fails_on_one_rank(job):
    """The others are told the text."""
    return _caught(job, (1,), _planned, ["rank 1", "batch 7"])


def habit_backward_fails_on_rank_0(job):
    return _caught(job, (0,), _planned, ["rank 0", "batch 7"])


def habit_backward_fails_on_two_ranks(job):
    return _caught(job, (0, 2), _planned, ["rank", "batch 7"])


def habit_backward_fails_on_one_rank_with_bucket_views(job):
    return _caught(job, (1,), _planned, ["rank 1", "batch 7"], gradient_as_bucket_view=True)


def habit_backward_fails_again_and_again(job):
    """Out of memory, tried again with a smaller batch."""
    model = job.net(150, 150, 3)
    optimizer = job.wrap(job.sgd(model, lr=0.01), model)
    for step in range(4):
        optimizer.zero_grad()
        if not job.is_oracle and step < 3:
            x = _Fails.apply(torch.tanh(model[0](job.data(job.rank, 7, 5, 150))), MemoryError("batch of 5"))
            job.expect((model[2](x) ** 2).mean().backward, "batch of 5")
            optimizer.zero_grad()
        job.backward(job.regression(model, step))
        optimizer.step()
    return model


def habit_a_hook_of_the_script_fails(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 1)
    optimizer.zero_grad()
    if not job.is_oracle:
        hook = model[0].weight.register_hook(lambda _: 1 / 0)
        job.expect(lambda: job.backward(job.regression(model, 60)), "ZeroDivisionError")
        hook.remove()
    optimizer.zero_grad()
    job.train(model, optimizer, 3, first=1)
    return model


def habit_a_batch_is_left_out_after_an_exception_in_forward(job):
    """Rank 1 catches it, makes no backward, and calls step() like the others."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)

    def loss_of(r, step):
        if r == 1 and step == 1:
            return None
        return job.regression(model, step)(r)

    for step in range(4):
        optimizer.zero_grad()
        job.backward(lambda r: loss_of(r, step))
        optimizer.step()
    return model


class _Interrupt(BaseException):
    """As KeyboardInterrupt."""


def habit_an_interrupt_in_backward_on_all_ranks(job):
    """Raised within backward, past `except Exception`; caught outside, and training goes on."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 2)
    optimizer.zero_grad()
    if not job.is_oracle:
        hook = model[0].weight.register_post_accumulate_grad_hook(_interrupt)
        try:
            job.backward(job.regression(model, 60))
            raise AssertionError("backward was not interrupted")
        except _Interrupt:
            hook.remove()
    optimizer.zero_grad()
    job.train(model, optimizer, 3, first=2)
    return model


def _interrupt(_):
    raise _Interrupt()


def habit_an_interrupt_while_backward_waits(job):
    """Rank 0 is late. Rank 1 is interrupted while it waits for it, and leaves out the batch, as do the others."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 2)
    optimizer.zero_grad()
    if not job.is_oracle:
        _wait_with_interrupt(job, model)
        job.agree()
    optimizer.zero_grad()
    job.train(model, optimizer, 3, first=2)
    return model


def _wait_with_interrupt(job, model):
    if job.rank == 1:
        before = signal.signal(signal.SIGALRM, lambda *_: _interrupt(None))
        signal.setitimer(signal.ITIMER_REAL, 0.7)
        try:
            job.backward(job.regression(model, 60))
            raise AssertionError("the wait in backward was not interrupted")
        except _Interrupt:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    else:
        time.sleep(2.5 if job.rank == 0 else 0)
        job.backward(job.regression(model, 60))


def habit_another_shape_is_refused_by_name(job):
    """A parameter whose data the script replaced; then the old one is put back."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model, momentum=0), model)
    job.train(model, optimizer, 2)
    if not job.is_oracle:
        kept = model[0].weight.data
        model[0].weight.data = torch.zeros(8, 6)
        optimizer.zero_grad()
        wide = lambda: mse(model, job.data(job.rank, 60, 5, 6), 0.0)  # noqa: E731
        job.expect(lambda: (wide().backward(), optimizer.step()), "0.weight", "[8, 6]", "[8, 4]")
        model[0].weight.grad = None
        model[0].weight.data = kept
    optimizer.zero_grad()
    job.train(model, optimizer, 3, first=2)
    return model


def habit_allreduce_of_a_strided_inference_tensor(job):
    """It is right, or refused before the collective."""
    with torch.inference_mode():
        value = torch.arange(12.0, dtype=job.dtype).view(3, 4).t() + 10 * job.rank
        if job.is_oracle:
            return [value + 10]
        before = value.clone()
        try:
            hvd.allreduce_(value, name="strided")
        except Exception as error:
            assert "strided" in str(error) or "inference" in str(error), error
            assert torch.equal(value, before), value
            value = hvd.allreduce(before.contiguous(), name="plain")
    job.agree()
    return [value.clone()]


def habit_backward_without_gradient_mode(job):
    """The loss was computed before; gradient mode is off around backward."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        losses = {r: job.regression(model, step)(r) for r in range(job.size)}
        with torch.no_grad():
            job.backward(lambda r: losses[r])
            optimizer.step()
    return model


def habit_evaluation_between_steps(job):
    """Inference mode, and backward for a saliency map, which reaches no parameter."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    maps = []
    for step in range(3):
        job.train(model, optimizer, 1, first=step)
        with torch.inference_mode():
            model(job.same(5, 4))
        image = job.same(5, 4, seed=step + 1).requires_grad_()
        (slope,) = torch.autograd.grad(model(image).sum(), image)
        maps.append(slope)
    return {"maps": torch.stack(maps), **dict(model.named_parameters())}


def habit_the_optimizer_is_deleted_between_backward_and_step(job):
    """Its gradients are reduced all the same, and no hook is left."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 2)
    optimizer.zero_grad()
    job.backward(job.regression(model, 60))
    if job.is_oracle:
        job.forget(optimizer)
    del optimizer
    model.zero_grad()
    again = job.wrap(job.sgd(model, lr=0.02), model)
    job.train(model, again, 2, first=2)
    return model


def habit_shutdown_and_init_between_steps(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        job.train(model, optimizer, 2, first=2 * step)
        if not job.is_oracle:
            hvd.shutdown()
            hvd.init(settings=job.settings)
    return model


def habit_asking_what_elastic_has(job):
    """hasattr() of a name that horo.elastic lacks is False, and raises nothing."""
    if not job.is_oracle:
        assert isinstance(hasattr(hvd.elastic, "run"), bool)
        assert not hasattr(hvd.elastic, "no_such_name")
    return [torch.ones(1, dtype=job.dtype)]
