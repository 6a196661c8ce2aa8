"""Several optimizers in one script."""

import torch
from torch import nn

import horo.torch as hvd


def _named_apart(model, prefix):
    return [(f"{prefix}.{name}", param) for name, param in model.named_parameters()]


def _shared_parameter(job, **options):
    """A parameter that two optimizers update: the one wrapped last reduces it."""
    a, b, c = (job.parameter(4, seed=seed) for seed in (1, 2, 3))
    first = job.wrap(torch.optim.SGD([a, b], lr=0.1), [("a", a), ("b", b)], **options)
    second = job.wrap(torch.optim.SGD([b, c], lr=0.2), [("b", b), ("c", c)], **options)
    for step in range(4):
        first.zero_grad()
        second.zero_grad()
        job.backward(lambda r: ((a * b + c) * job.data(r, step, 4)).sum())
        first.step()
        second.step()
    return [a, b, c]


def habit_one_parameter_in_two_optimizers(job):
    return _shared_parameter(job)


def habit_one_parameter_in_two_optimizers_with_bucket_views(job):
    return _shared_parameter(job, gradient_as_bucket_view=True)


def habit_a_new_session_after_parameters_were_added(job):
    """The loss of rank 1 reaches nothing after the new init(), so that it has used one of its two optimizers only."""
    a, b, extra = (job.parameter(4, seed=seed) for seed in (1, 2, 3))
    first = job.wrap(torch.optim.SGD([a], lr=0.1), [("a", a), ("extra", extra)])
    second = job.wrap(torch.optim.SGD([b], lr=0.2), [("b", b), ("extra", extra)])
    second.add_param_group({"params": [extra]})
    for step in range(4):
        if step == 2 and not job.is_oracle:
            hvd.shutdown()
            hvd.init(settings=job.settings)
        for param in (a, b, extra):
            param.grad = None
        nothing = torch.zeros(1, dtype=job.dtype, requires_grad=True)
        job.backward(lambda r: ((a * b + extra) * job.data(r, step, 4)).sum() if r != 1 or step < 2 else nothing.sum())
        first.step()
        second.step()
    return [a, b, extra]


def habit_wrapping_a_model_again(job):
    """The second phase has another optimizer over the same model; the old one is still there."""
    model = job.net()
    first = job.wrap(job.sgd(model), model)
    job.train(model, first, 2)
    second = job.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model)
    job.train(model, second, 3, first=2)
    return model


def habit_an_optimizer_per_phase(job):
    model = job.net()
    for phase, width in enumerate((2, 4)):
        params = list(model.parameters())[-width:]
        optimizer = job.wrap(torch.optim.Adam(params, lr=0.01))
        job.train(model, optimizer, 2, first=2 * phase)
        if job.is_oracle:
            job.forget(optimizer)
        del optimizer
        model.zero_grad()
    return model


def habit_an_optimizer_per_layer_in_one_backward(job):
    """Muon and its kin: matrices have one optimizer, vectors another."""
    model = job.net()
    matrices = [param for param in model.parameters() if param.dim() > 1]
    vectors = [param for param in model.parameters() if param.dim() == 1]
    first, second = job.wrap(torch.optim.SGD(matrices, lr=0.1)), job.wrap(torch.optim.AdamW(vectors, lr=0.01))
    for step in range(4):
        first.zero_grad()
        second.zero_grad()
        job.backward(job.regression(model, step))
        second.step()
        first.step()
    return model


def habit_two_optimizers_with_different_operations(job):
    a, b = job.parameter(4, seed=1), job.parameter(4, seed=2)
    first = job.wrap(torch.optim.SGD([a], lr=0.1), [("w", a)], op=hvd.Sum)
    second = job.wrap(torch.optim.SGD([b], lr=0.1), [("w", b)])
    for step in range(3):
        first.zero_grad()
        second.zero_grad()
        job.backward(lambda r: ((a + b**2) * job.data(r, step, 4)).sum())
        first.step()
        second.step()
    return [a, b]


def habit_one_of_two_optimizers_steps_less_often(job):
    a, b = job.net(seed=1), job.net(seed=2)
    first = job.wrap(job.sgd(a), _named_apart(a, "a"))
    second = job.wrap(job.sgd(b, lr=0.02), _named_apart(b, "b"))
    for step in range(6):
        first.zero_grad()
        job.backward(lambda r: job.regression(a, step)(r) + job.regression(b, step)(r))
        first.step()
        if step % 3 == 2:
            second.step()
            second.zero_grad()
    return nn.ModuleList([a, b])
