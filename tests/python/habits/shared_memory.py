"""Gradients whose memory something else holds: other gradients, views, autograd, or the script."""

import time

import torch
from job import mse
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

import horo.torch as hvd


def _three(job):
    return [job.parameter(4, seed=seed) for seed in (1, 2, 3)]


def _steps(job, params, loss_of, count=3, **options):
    optimizer = job.wrap(torch.optim.SGD(params, lr=0.1, momentum=0.5), **options)
    for step in range(count):
        optimizer.zero_grad()
        job.backward(lambda r: loss_of(r, step))
        optimizer.step()
    return params


def _pause(param):
    """The gradient of this parameter is late, so that earlier ones are reduced before it is submitted."""
    param.register_hook(lambda _: time.sleep(0.05))


def habit_stack_sum_in_the_loss(job):
    params = _three(job)

    def loss_of(r, step):
        return (torch.tanh(torch.stack(params).sum(0)) * job.data(r, step, 4)).pow(2).sum()

    return _steps(job, params, loss_of)


def _only_stacked(job, elements, **options):
    """autograd gives the gradients of all parameters one address."""
    params = [job.parameter(elements, seed=seed) for seed in (1, 2, 3)]
    _pause(params[1])

    def weight(r, step):
        return job.data(r, step, elements)

    def loss_of(r, step):
        return (torch.stack(params).sum(0) * weight(r, step)).sum()

    return _steps(job, params, loss_of, 4, op=hvd.Sum, **options)


def habit_gradients_at_one_address(job):
    return _only_stacked(job, 4)


def habit_gradients_at_one_address_with_bucket_views(job):
    return _only_stacked(job, 4, gradient_as_bucket_view=True)


def habit_gradients_at_one_address_in_a_group(job):
    return _only_stacked(job, 4, num_groups=1)


def habit_large_gradients_at_one_address(job):
    return _only_stacked(job, 30000)


def habit_large_gradients_at_one_address_with_bucket_views(job):
    return _only_stacked(job, 30000, gradient_as_bucket_view=True)


class _Slow(torch.autograd.Function):
    """The identity. Its backward takes a moment."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.05)
        return gradient


def _read_later(job, rows, **options):
    """a.grad is a view of the gradient that autograd still passes on to b, through tanh."""
    a, b = job.parameter(rows, 200, seed=1), job.parameter(rows * 200, seed=2)

    def loss_of(r, step):
        return ((_Slow.apply(torch.tanh(b)) + a.view(-1)) * (1 + r + step)).sum()

    return _steps(job, [a, b], loss_of, 4, op=hvd.Sum, **options)


def habit_a_gradient_that_autograd_still_reads(job):
    return _read_later(job, 1)


def habit_a_large_gradient_that_autograd_still_reads(job):
    """Too large for a batch: its hook submits it while backward goes on."""
    return _read_later(job, 200)


def habit_a_large_gradient_that_autograd_still_reads_with_views(job):
    return _read_later(job, 200, gradient_as_bucket_view=True)


def habit_expanded_gradients(job):
    a, b = job.parameter(3, 5, seed=1), job.parameter(7, seed=2)
    return _steps(job, [a, b], lambda r, step: a.sum() * (r + 1) + b.mean() * job.data(r, step, 1).sum())


def habit_parameters_are_slices_of_one_buffer(job):
    model = job.net(4, 6, 3)
    sizes = [param.numel() for param in model.parameters()]
    flat = torch.cat([param.detach().flatten() for param in model.parameters()])
    for param, part in zip(model.parameters(), flat.split(sizes)):
        param.data = part.view_as(param)
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 4)
    return {"flat": flat, **dict(model.named_parameters())}


def _flat_gradients(job, *widths, **options):
    """As in apex and fairseq: all gradients are slices of one buffer, and zeroed at once."""
    model = job.net(*widths)
    sizes = [param.numel() for param in model.parameters()]
    flat = torch.zeros(sum(sizes), dtype=job.dtype)
    optimizer = job.wrap(job.sgd(model), model, **options)
    for step in range(4):
        flat.zero_()
        for param, part in zip(model.parameters(), flat.split(sizes)):
            param.grad = part.view_as(param)
        job.backward(job.regression(model, step))
        optimizer.step()
    return model


def habit_gradients_accumulate_into_slices_of_one_buffer(job):
    return _flat_gradients(job, 4, 6, 3)


def habit_large_gradients_accumulate_into_slices_of_one_buffer(job):
    return _flat_gradients(job, 130, 130, 130)


def habit_gradients_accumulate_into_slices_with_bucket_views(job):
    return _flat_gradients(job, 130, 130, 3, gradient_as_bucket_view=True)


def habit_a_stacked_ensemble(job):
    models = [job.net(4, 5, 2, seed=seed) for seed in range(3)]
    params, _ = stack_module_state(models)
    params = {name: nn.Parameter(value.detach()) for name, value in params.items()}
    optimizer = job.wrap(torch.optim.Adam(params.values(), lr=0.02), list(params.items()))

    def loss(r, step):
        x, y = job.data(r, step, 6, 4), job.data(r, step + 50, 6, 2)

        def one(weights):
            return functional_call(models[0], weights, (x,))

        return ((vmap(one)(params) - y) ** 2).mean()

    for step in range(3):
        optimizer.zero_grad()
        job.backward(lambda r: loss(r, step))
        optimizer.step()
    return params


def habit_an_ensemble_of_views_of_one_stack(job):
    """The members' weights are views of stacked leaves; all views have one version counter."""
    stack = job.same(3, 4, 2, seed=4)
    members = [nn.Parameter(one) for one in stack.unbind(0)]

    def loss_of(r, step):
        return sum(mse(lambda x: x @ w, job.data(r, step, 5, 4), 1.0) for w in members)

    return _steps(job, members, loss_of)


def habit_one_gradient_for_two_parameters(job):
    """A function of the script returns one tensor as the gradient of both of its inputs."""

    class Add(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, gradient):
            return gradient, gradient

    a, b = job.parameter(5, seed=1), job.parameter(5, seed=2)
    return _steps(job, [a, b], lambda r, step: (Add.apply(a, b) * job.data(r, step, 5)).sum(), op=hvd.Sum)


def habit_a_hook_keeps_the_local_gradient(job):
    """A tensor hook sees local gradients, and what it kept stays as it was."""
    model, kept, wrong = job.net(), [], []
    model[0].weight.register_hook(lambda gradient: kept.append((gradient, gradient.clone())))
    optimizer = job.wrap(job.sgd(model), model, op=hvd.Sum)
    job.train(model, optimizer, 3)
    wrong = [1 for held, copy in kept if not torch.equal(held, copy)]
    assert not wrong, f"{len(wrong)} of {len(kept)} kept gradients were written to"
    return model


def habit_gradients_of_earlier_steps_are_kept(job):
    """Without bucket views, a gradient that the script keeps is not written to by later steps."""
    model, kept = job.net(), []
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(4):
        optimizer.zero_grad(set_to_none=True)
        job.backward(job.regression(model, step))
        kept += [param.grad for param in model.parameters()]
        optimizer.step()
    return kept


def habit_one_tensor_is_the_gradient_of_two_parameters(job):
    """Made by hand, without backward."""
    a, b = job.parameter(5, seed=1), job.parameter(5, seed=2)
    optimizer = job.wrap(torch.optim.SGD([a, b], lr=0.1))
    for step in range(3):
        if job.is_oracle:
            a.grad = b.grad = sum(job.data(r, step, 5) for r in range(job.size)) / job.size
        else:
            a.grad = b.grad = job.data(job.rank, step, 5)
        optimizer.step()
    return [a, b]


def habit_channels_last(job):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).to(job.dtype)
    model = model.to(memory_format=torch.channels_last)
    optimizer = job.wrap(job.sgd(model, lr=0.02), model)
    for step in range(3):
        optimizer.zero_grad()

        def image(r):
            return job.data(r, step, 2, 3, 8, 8).to(memory_format=torch.channels_last)

        job.backward(lambda r: mse(model, image(r), 0.5))
        optimizer.step()
    return model


def habit_tied_weights(job):
    """The output layer is the embedding, as in language models."""
    table = nn.Embedding(11, 6)
    out = nn.Linear(6, 11, bias=False)
    table.weight.data = job.same(11, 6, seed=8)
    out.weight = table.weight
    model = nn.Sequential(table, out)
    optimizer = job.wrap(torch.optim.AdamW(model.parameters(), lr=0.01), model)

    def loss(r, step):
        tokens = job.data(r, step, 12).abs().mul(20).long() % 11
        return nn.functional.cross_entropy(model(tokens), tokens.roll(1))

    for step in range(4):
        optimizer.zero_grad()
        job.backward(lambda r: loss(r, step))
        optimizer.step()
    return model
