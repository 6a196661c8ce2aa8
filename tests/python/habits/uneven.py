"""Ranks and threads that do more than others: an extra backward or step, steps in hooks, several threads."""

import threading

import torch
from torch import nn


def _new_training(job):
    model = job.net(seed=33)
    optimizer = job.wrap(job.sgd(model), [(f"new.{name}", param) for name, param in model.named_parameters()])
    job.train(model, optimizer, 3)
    return model


def _one_more(job, extra_ranks, named, **options):
    """Some ranks make a backward more than the others: all ranks are told, by name, and nothing hangs."""
    if job.is_oracle:
        return _new_training(job)
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model, **options)
    job.train(model, optimizer, 2)
    parts = ["Mismatch", *named]

    def rest():
        for step in range(2, 5):
            optimizer.zero_grad()
            job.backward(job.regression(model, step))
            if job.rank in extra_ranks and step == 3:
                job.backward(job.regression(model, 77))
            optimizer.step()

    error = job.expect(rest, *parts)
    assert any(name in str(error) for name, _ in model.named_parameters()), error
    job.agree()
    return _new_training(job)


def habit_one_backward_more_on_one_rank(job):
    return _one_more(job, (1,), ["rank 1"])


def habit_one_backward_more_on_one_rank_with_bucket_views(job):
    return _one_more(job, (1,), ["rank 1"], gradient_as_bucket_view=True)


def habit_one_backward_more_on_two_ranks(job):
    return _one_more(job, (0, 2), ["rank"])


def habit_step_in_a_hook(job):
    """The last gradient's hook calls step(), before backward has ended."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    if job.is_oracle:
        job.train(model, optimizer, 3)
        return model
    model[0].weight.register_hook(lambda _: None)
    arrived = []
    for param in model.parameters():
        param.register_post_accumulate_grad_hook(lambda _: arrived.append(1))

    def step_at_the_last(_):
        if len(arrived) % 4 == 0:
            optimizer.step()

    for param in model.parameters():
        param.register_post_accumulate_grad_hook(step_at_the_last)
    for step in range(3):
        optimizer.zero_grad()
        job.backward(job.regression(model, step))
    return model


def habit_an_optimizer_per_parameter_in_backward(job):
    """Each parameter is updated by its own optimizer as soon as its gradient is there, and the gradient is freed."""
    model = job.net(150, 150, 3)
    if job.is_oracle:
        optimizer = job.wrap(torch.optim.Adam(model.parameters(), lr=0.01))
        job.train(model, optimizer, 3)
        return model
    optimizers = {
        param: job.wrap(torch.optim.Adam([param], lr=0.01), [(name, param)]) for name, param in model.named_parameters()
    }

    def update(param):
        optimizers[param].step()
        optimizers[param].zero_grad()

    for param in model.parameters():
        param.register_post_accumulate_grad_hook(update)
    for step in range(3):
        job.backward(job.regression(model, step))
    return model


def habit_two_threads_with_a_model_each(job):
    models = [job.net(seed=seed) for seed in (1, 2)]
    optimizers = [
        job.wrap(job.sgd(m), [(f"{i}.{n}", p) for n, p in m.named_parameters()]) for i, m in enumerate(models)
    ]
    if job.is_oracle:
        for model, optimizer in zip(models, optimizers):
            job.train(model, optimizer, 20)
        return nn.ModuleList(models)
    failed = []

    def train(i):
        try:
            job.train(models[i], optimizers[i], 20)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=train, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    return nn.ModuleList(models)


class _Meets(torch.autograd.Function):
    """The identity. Its backward tells that it has begun, and waits."""

    @staticmethod
    def forward(ctx, x, begun, go_on):
        ctx.events = begun, go_on
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        begun, go_on = ctx.events
        begun.set()
        go_on.wait(20)
        return gradient, None, None


def habit_two_threads_through_one_model(job):
    """While one thread is in backward, another begins one through the same model: refused by name."""
    if job.is_oracle:
        return _new_training(job)
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 2)
    optimizer.zero_grad()
    begun, go_on, errors = threading.Event(), threading.Event(), []

    def first():
        try:
            hidden = _Meets.apply(torch.tanh(model[0](job.data(job.rank, 7, 5, 4))), begun, go_on)
            (model[2](hidden) ** 2).mean().backward()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    begun.wait(20)
    try:
        job.backward(job.regression(model, 60))
    except Exception as error:
        errors.append(error)
    go_on.set()
    thread.join()
    texts = [str(error) for error in errors]
    assert texts and any("thread" in text and "gradient" in text for text in texts), texts
    job.agree()
    return _new_training(job)


def habit_gradient_shapes_that_differ_between_ranks(job):
    if job.is_oracle:
        return _new_training(job)
    weight = nn.Parameter(torch.zeros(2 + job.rank))
    optimizer = job.wrap(torch.optim.SGD([weight], lr=0.1), [("differs", weight)])
    job.expect(lambda: (weight.sum().backward(), optimizer.step()), "Mismatch", "differs", "shape")
    job.agree()
    return _new_training(job)
