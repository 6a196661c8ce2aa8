"""What a backward pass reaches: heads that differ between ranks, nothing at all; gradients made by hand."""

import torch
from job import mse
from torch import nn

import horo.torch as hvd


def _gan(job, make):
    """A generator and a discriminator; the one that is not trained is frozen for a moment, as in many scripts."""
    models = {"g": job.net(3, 6, 4, seed=1), "d": job.net(4, 6, 1, seed=2)}
    optimizers = make(models)
    for step in range(3):
        models["d"].requires_grad_(True)
        optimizers["d"].zero_grad()

        def real(r):
            return mse(models["d"], job.data(r, step, 5, 4), 1.0)

        def fake(r):
            return mse(models["d"], models["g"](job.data(r, step + 9, 5, 3)).detach(), 0.0)

        job.backward(real)
        job.backward(fake)
        optimizers["d"].step()
        models["d"].requires_grad_(False)
        optimizers["g"].zero_grad()
        job.backward(lambda r: mse(models["d"], models["g"](job.data(r, step + 18, 5, 3)), 1.0))
        optimizers["g"].step()
    return nn.ModuleDict(models)


def habit_gan_with_equal_names(job):
    """Both models have parameters 0.weight and so on."""
    return _gan(job, lambda models: {n: job.wrap(job.sgd(m), m) for n, m in models.items()})


def habit_gan_without_freezing(job):
    """The generator's loss also reaches the discriminator, whose gradients are thrown away afterwards."""
    generator, discriminator = job.net(3, 6, 4, seed=1), job.net(4, 6, 1, seed=2)
    first, second = job.wrap(job.sgd(generator), generator), job.wrap(job.sgd(discriminator), discriminator)
    for step in range(4):
        first.zero_grad()
        job.backward(lambda r: mse(discriminator, generator(job.data(r, step, 5, 3)), 1.0))
        first.step()
        second.zero_grad()
        job.backward(
            lambda r: (
                mse(discriminator, job.data(r, step, 5, 4), 1.0)
                + mse(discriminator, generator(job.data(r, step + 9, 5, 3)).detach(), 0.0)
            )
        )
        second.step()
    return nn.ModuleList([generator, discriminator])


def habit_gan_without_names(job):
    return _gan(job, lambda models: {n: job.wrap(job.sgd(m)) for n, m in models.items()})


def habit_two_named_optimizers_made_in_another_order_on_one_rank(job):
    """Names differ, so the order of wrapping does not matter."""

    def make(models):
        order = ["g", "d"] if job.rank == 0 else ["d", "g"]

        def named(n):
            return [(f"{n}.{name}", param) for name, param in models[n].named_parameters()]

        return {n: job.wrap(job.sgd(models[n]), named(n)) for n in order}

    return _gan(job, make)


def _heads(job, make, **options):
    """Rank 0 reaches head a alone, the others head b alone."""
    trunk, heads = job.net(4, 6, seed=1), nn.ModuleList([job.net(6, 2, seed=2), job.net(6, 2, seed=3)])
    optimizers = make(trunk, heads)

    def loss(r, step):
        head = heads[0 if (r + step) % job.size == 0 else 1]
        return mse(lambda x: head(torch.tanh(trunk(x))), job.data(r, step, 5, 4), 0.5)

    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        job.backward(lambda r: loss(r, step))
        for optimizer in optimizers:
            optimizer.step()
    return nn.ModuleList([trunk, *heads])


def habit_another_head_on_each_rank(job):
    def make(trunk, heads):
        every = nn.ModuleList([trunk, *heads])
        return [job.wrap(job.sgd(every), every)]

    return _heads(job, make)


def habit_another_head_on_each_rank_with_bucket_views(job):
    def make(trunk, heads):
        every = nn.ModuleList([trunk, *heads])
        return [job.wrap(job.sgd(every), every, gradient_as_bucket_view=True)]

    return _heads(job, make)


def habit_another_head_with_an_optimizer_each(job):
    return _heads(job, lambda trunk, heads: [job.wrap(job.sgd(model)) for model in (trunk, *heads)])


def habit_a_loss_that_reaches_nothing_on_one_rank(job):
    """Rank 1 has no labels in some batches: it calls no backward, and step() takes part for it."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(5):
        optimizer.zero_grad()
        job.backward(lambda r: None if r == 1 and step % 2 == 0 else job.regression(model, step)(r))
        optimizer.step()
    return model


def habit_a_loss_of_nothing_on_one_rank(job):
    """Its backward runs, and reaches no parameter."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    idle = torch.ones(1, dtype=job.dtype, requires_grad=True)
    for step in range(4):
        optimizer.zero_grad()
        job.backward(lambda r: (idle * 2).sum() if r == 2 and step % 2 else job.regression(model, step)(r))
        optimizer.step()
    return model


def habit_a_step_without_gradients(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    optimizer.step()
    job.train(model, optimizer, 2)
    optimizer.zero_grad()
    optimizer.step()
    job.train(model, optimizer, 2, first=2)
    return model


def habit_gradients_made_by_hand(job):
    """Without a backward pass: step() reduces."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    params = list(model.parameters())
    for step in range(3):
        optimizer.zero_grad()
        parts = [torch.autograd.grad(job.regression(model, step)(r), params) for r in range(job.size)]
        if job.is_oracle:
            for param, *gradients in zip(params, *parts):
                param.grad = sum(gradients) / job.size
        else:
            for param, gradient in zip(params, parts[job.rank]):
                param.grad = gradient.clone()
        optimizer.step()
    return model


def habit_evolution_strategies(job):
    """Gradients estimated from losses at random weights, without autograd; synchronize(), then clipping."""
    weight = job.parameter(6, seed=1)
    optimizer = job.wrap(torch.optim.Adam([weight], lr=0.05), [("weight", weight)])

    def estimate(r, step):
        noise = job.data(r, step, 8, 6)
        losses = ((weight.detach() + 0.1 * noise) ** 2).sum(1)
        return (losses[:, None] * noise).mean(0)

    for step in range(3):
        if job.is_oracle:
            weight.grad = sum(estimate(r, step) for r in range(job.size)) / job.size
        else:
            weight.grad = estimate(job.rank, step)
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_([weight], 0.5)
        with optimizer.skip_synchronize():
            optimizer.step()
    return [weight]


def habit_backward_with_inputs(job):
    """backward(inputs=...) reaches some parameters only."""
    model = job.net(4, 6, 3)
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        job.backward(job.regression(model, step), inputs=list(model[0].parameters()))
        optimizer.step()
    return model


def habit_backward_of_several_losses(job):
    """torch.autograd.backward([a, b])"""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)

    class Pair:
        def __init__(self, losses):
            self.losses = losses

        def backward(self):
            torch.autograd.backward(self.losses)

        def detach(self):
            return self.losses[0].detach()

    for step in range(3):
        optimizer.zero_grad()
        job.backward(lambda r: Pair([job.regression(model, step)(r), job.regression(model, step + 40)(r)]))
        optimizer.step()
    return model


def habit_backward_from_a_matrix(job):
    """backward(gradient=...) of a result that is no scalar."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        job.backward(lambda r: model(job.data(r, step, 5, 4)).mean(0), gradient=job.same(3, seed=step))
        optimizer.step()
    return model


def habit_detect_anomaly(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    with torch.autograd.detect_anomaly(check_nan=True):
        job.train(model, optimizer, 3)
    return model


def habit_an_unused_parameter_everywhere(job):
    model = nn.ModuleList([job.net(seed=1), job.net(seed=2)])
    optimizer = job.wrap(torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.1), model)
    job.train_one = model[0]
    for step in range(3):
        optimizer.zero_grad()
        job.backward(job.regression(model[0], step))
        assert all(param.grad is None for param in model[1].parameters())
        optimizer.step()
    return model


def habit_a_parameter_used_by_one_rank_alone_with_sum(job):
    a, b = job.parameter(4, seed=1), job.parameter(4, seed=2)
    optimizer = job.wrap(torch.optim.SGD([a, b], lr=0.1), op=hvd.Sum)
    for step in range(4):
        optimizer.zero_grad()

        def used(r):
            return a + b if r == step % job.size else a

        job.backward(lambda r: (used(r) * job.data(r, step, 4)).sum())
        optimizer.step()
    return [a, b]


def habit_zero_grad_by_one_rank_alone(job):
    """Gradients are None on that rank only, before backward computes new ones: nothing hangs, and p.grad of the
    others, which still holds a result, is added to."""
    weight = job.parameter(4, seed=1)
    optimizer = job.wrap(torch.optim.SGD([weight], lr=0.1), [("weight", weight)])
    results, last = [], None
    for step in range(3):
        local = [job.data(r, step, 4) for r in range(job.size)]
        if job.is_oracle:
            kept = [torch.zeros(4) if last is None or r == 1 else last for r in range(job.size)]
            last = weight.grad = sum(k + g for k, g in zip(kept, local)) / job.size
        else:
            if job.rank == 1:
                optimizer.zero_grad()
            (weight * local[job.rank]).sum().backward()
        optimizer.step()
        results.append(weight.grad.clone())
    return [weight, *results]
