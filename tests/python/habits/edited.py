"""Optimizers whose parameters, gradients or states a script edits by hand."""

import copy

import torch
from job import mse

import horo.torch as hvd


def _steps_with(job, model, optimizers, steps, first=0):
    for step in range(first, first + steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        job.backward(job.regression(model, step))
        for optimizer in optimizers:
            optimizer.step()


def _by_hand(job, params, loss_of):
    """Makes the gradients of these parameters without backward()."""
    ranks = range(job.size) if job.is_oracle else [job.rank]
    parts = [torch.autograd.grad(loss_of(r), params) for r in ranks]
    for param, *gradients in zip(params, *parts):
        param.grad = sum(gradients) / len(gradients)


def habit_load_state_dict_between_backward_and_step(job):
    """The gradients are results already: they are not summed again."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model, lr=0.02), model, op=hvd.Sum)
    job.train(model, optimizer, 2)
    kept = copy.deepcopy(optimizer.state_dict())
    job.train(model, optimizer, 1, first=2)
    optimizer.zero_grad()
    job.backward(job.regression(model, 3))
    optimizer.load_state_dict(kept)
    optimizer.step()
    return model


def habit_lbfgs_with_gradients_made_by_hand(job):
    job.tolerance = 5e-3
    model = job.net(4, 5, 2)
    params = list(model.parameters())
    optimizer = job.wrap(torch.optim.LBFGS(params, lr=0.3, max_iter=5), model)
    for step in range(2):

        def closure():
            for param in params:
                param.grad = None
            _by_hand(job, params, job.regression(model, step))
            with torch.no_grad():
                losses = [job.regression(model, step)(r) for r in range(job.size)]
            return torch.stack(losses).mean() if job.is_oracle else losses[job.rank]

        optimizer.step(closure)
    return model


def habit_gradients_made_by_hand_after_a_backward(job):
    """A warm-up backward, zero_grad(), then the gradients of the step are made by hand."""
    model = job.net()
    params = list(model.parameters())
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        job.backward(job.regression(model, step + 50))
        optimizer.zero_grad()
        _by_hand(job, params, job.regression(model, step))
        optimizer.step()
    return model


def habit_sums_made_by_hand_after_a_backward(job):
    """Whether such gradients are made of results is unknown: refused, and synchronize() reduces them."""
    model = job.net()
    params = list(model.parameters())
    optimizer = job.wrap(job.sgd(model, lr=0.02), model, op=hvd.Sum)
    job.train(model, optimizer, 1)
    optimizer.zero_grad()
    job.backward(job.regression(model, 50))
    optimizer.zero_grad()
    loss_of = job.regression(model, 1)
    _by_hand(job, params, (lambda r: loss_of(r) * job.size) if job.is_oracle else loss_of)
    if not job.is_oracle:
        job.expect(optimizer.step, "synchronize()", "skip_synchronize()")
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
    else:
        optimizer.step()
    return model


def habit_a_gradient_replaced_before_a_cross_barrier_step(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model, cross_barrier=True)
    job.train(model, optimizer, 2)
    if not job.is_oracle:
        optimizer.zero_grad()
        job.backward(job.regression(model, 50))
        first = next(model.parameters())
        first.grad = first.grad * 0.5
        job.expect(optimizer.step, "0.weight", "replaced", "synchronize()")
        optimizer.synchronize()
        model.zero_grad()
    return model


def habit_a_parameter_moves_to_another_optimizer(job):
    model = job.net()
    params = list(model.parameters())
    one = job.wrap(torch.optim.SGD(params[:2], lr=0.1), model)
    other = job.wrap(torch.optim.SGD(params[2:], lr=0.05), model)
    _steps_with(job, model, [one, other], 2)
    moved = one.param_groups[0]["params"].pop()
    other.add_param_group({"params": [moved], "lr": 0.02})
    _steps_with(job, model, [one, other], 2, first=2)
    other.param_groups[1]["params"].clear()
    one.param_groups[0]["params"].append(moved)
    _steps_with(job, model, [one, other], 2, first=4)
    return model


def _replaced(job, **options):
    """A layer gets a new weight, as when an embedding grows."""
    model = job.net()
    optimizer = job.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, **options)
    job.train(model, optimizer, 2)
    model[2].weight = job.parameter(3, 8, seed=9)
    optimizer.param_groups[0]["params"][2] = model[2].weight
    job.train(model, optimizer, 3, first=2)
    return model


def habit_a_parameter_is_replaced(job):
    return _replaced(job)


def habit_a_parameter_of_a_group_is_replaced(job):
    return _replaced(job, num_groups=2)


def habit_a_parameter_with_a_bucket_view_is_replaced(job):
    return _replaced(job, gradient_as_bucket_view=True)


def habit_a_parameter_is_replaced_with_cross_barrier(job):
    model = job.net()
    optimizer = job.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, cross_barrier=True)
    job.train(model, optimizer, 2)
    optimizer.synchronize()
    model[2].weight = job.parameter(3, 8, seed=9)
    optimizer.param_groups[0]["params"][2] = model[2].weight
    job.train(model, optimizer, 3, first=2)
    optimizer.synchronize()
    return model


def habit_a_parameter_leaves_and_returns(job):
    model = job.net()
    optimizer = job.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
    job.train(model, optimizer, 2)
    last = optimizer.param_groups[0]["params"].pop()
    job.train(model, optimizer, 2, first=2)
    last.grad = None
    optimizer.param_groups[0]["params"].append(last)
    job.train(model, optimizer, 2, first=4)
    return model


def habit_a_copy_on_one_rank_and_then_a_new_model(job):
    """Rank 0 alone keeps a copy of model and optimizer; the streams of later optimizers are equal on all ranks."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 2)
    kept = copy.deepcopy((model, optimizer)) if job.rank == 0 else None
    fresh = job.net(4, 8, 3, seed=5)
    job.train(fresh, job.wrap(job.sgd(fresh), fresh), 2)
    job.train(model, optimizer, 2, first=2)
    del kept
    return {**dict(model.named_parameters()), **{f"fresh.{n}": p for n, p in fresh.named_parameters()}}


def habit_a_copy_that_trains_on(job):
    """The copy is of a wrapped optimizer with groups, one of which has lost a parameter."""
    model = job.net()
    optimizer = job.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, num_groups=2)
    job.train(model, optimizer, 2)
    optimizer.param_groups[0]["params"].pop()
    job.train(model, optimizer, 1, first=2)
    if job.is_oracle:
        other, others = copy.deepcopy(model), None
        others = job.wrap(torch.optim.SGD(list(other.parameters())[:-1], lr=0.1))
    else:
        other, others = copy.deepcopy((model, optimizer))
    job.train(other, others, 2, first=3)
    job.train(model, optimizer, 2, first=5)
    return {**dict(model.named_parameters()), **{f"copy.{n}": p for n, p in other.named_parameters()}}


def habit_add_param_group_in_two_unnamed_optimizers(job):
    a, b, c, d = (job.parameter(4, seed=seed) for seed in (1, 2, 3, 4))
    one, other = job.wrap(torch.optim.SGD([a], lr=0.1)), job.wrap(torch.optim.SGD([b], lr=0.1))
    for step in range(4):
        if step == 2:
            one.add_param_group({"params": [c]})
            other.add_param_group({"params": [d]})
        for optimizer in (one, other):
            optimizer.zero_grad()
        job.backward(lambda r: ((a * b + c * d) * job.data(r, step, 4)).sum())
        one.step()
        other.step()
        c.grad = d.grad = None
    return [a, b, c, d]


def habit_a_parameter_is_rejected_and_then_added(job):
    """add_param_group() of a parameter that is in the optimizer already changes nothing."""
    model, extra = job.net(), job.parameter(3, seed=4)
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 1)
    if not job.is_oracle:
        job.expect(lambda: optimizer.add_param_group({"params": [extra, model[0].weight]}), "parameter")
    optimizer.add_param_group({"params": [extra]})
    for step in range(1, 4):
        optimizer.zero_grad()
        job.backward(lambda r: mse(lambda x: model(x) + extra, job.data(r, step, 5, 4), 0.5))
        optimizer.step()
    return {"extra": extra, **dict(model.named_parameters())}
