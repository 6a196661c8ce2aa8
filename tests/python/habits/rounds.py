"""Several backward passes for one step, and several rounds."""

import torch
from job import mse

import horo.torch as hvd


def habit_no_sync(job):
    """As under DDP: the passes inside only accumulate."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        with job.no_sync(optimizer):
            for part in range(3):
                job.backward(lambda r: job.regression(model, 10 * step + part)(r) / 4)
        job.backward(lambda r: job.regression(model, 10 * step + 3)(r) / 4)
        optimizer.step()
    return model


def habit_no_sync_with_bucket_views(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model, gradient_as_bucket_view=True)
    for step in range(4):
        optimizer.zero_grad()
        with job.no_sync(optimizer):
            job.backward(job.regression(model, 10 * step))
        job.backward(job.regression(model, 10 * step + 1))
        optimizer.step()
    return model


def habit_no_sync_with_sum(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model, lr=0.03), model, op=hvd.Sum)
    for step in range(3):
        optimizer.zero_grad()
        with job.no_sync(optimizer):
            job.backward(job.regression(model, 10 * step))
        job.backward(job.regression(model, 10 * step + 1))
        optimizer.step()
    return model


def habit_all_passes_in_no_sync(job):
    """No round has covered them: step() reduces."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        with job.no_sync(optimizer):
            for part in range(2):
                job.backward(job.regression(model, 10 * step + part))
        optimizer.step()
    return model


def habit_local_passes_after_a_round(job):
    """A round, then passes in no_sync(): step() reduces what was added."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        job.backward(job.regression(model, 10 * step))
        with job.no_sync(optimizer):
            job.backward(job.regression(model, 10 * step + 1))
        optimizer.step()
    return model


def habit_the_last_pass_reaches_other_parameters(job):
    """What was accumulated in no_sync() is reduced though the last backward does not reach it."""
    first, second = job.net(4, 6, 3, seed=1), job.net(4, 6, 3, seed=2)
    both = torch.nn.ModuleList([first, second])
    optimizer = job.wrap(job.sgd(both), both)
    for step in range(3):
        optimizer.zero_grad()
        with job.no_sync(optimizer):
            job.backward(job.regression(first, step))
        job.backward(job.regression(second, step))
        optimizer.step()
    return both


def _passes(job, **options):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model, backward_passes_per_step=3, **options)
    for step in range(3):
        optimizer.zero_grad()
        for part in range(3):
            job.backward(lambda r: job.regression(model, 10 * step + part)(r) / 3)
        optimizer.step()
    return model


def habit_backward_passes_per_step(job):
    return _passes(job)


def habit_backward_passes_per_step_with_bucket_views(job):
    return _passes(job, gradient_as_bucket_view=True)


def habit_backward_passes_per_step_with_sum(job):
    return _passes(job, op=hvd.Sum)


def habit_the_last_batch_has_fewer_passes(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model, backward_passes_per_step=3)
    for step, passes in enumerate([3, 3, 1, 3, 2]):
        optimizer.zero_grad()
        for part in range(passes):
            job.backward(job.regression(model, 10 * step + part))
        optimizer.step()
    return model


def habit_clip_after_backward_passes_per_step(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model, backward_passes_per_step=2)
    for step in range(3):
        optimizer.zero_grad()
        for part in range(2):
            job.backward(job.regression(model, 10 * step + part))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.03)
        optimizer.step()
    return model


def _twice(job, **options):
    """A discriminator's two losses, as in torch's DCGAN example."""
    model = job.net()
    optimizer = job.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model, **options)
    for step in range(4):
        optimizer.zero_grad()
        job.backward(job.regression(model, 10 * step))
        job.backward(job.regression(model, 10 * step + 1))
        optimizer.step()
    return model


def habit_two_backwards_per_step(job):
    return _twice(job)


def habit_two_backwards_per_step_with_bucket_views(job):
    return _twice(job, gradient_as_bucket_view=True)


def habit_two_backwards_per_step_in_groups(job):
    return _twice(job, num_groups=2)


def habit_two_backwards_per_step_with_sum(job):
    """Sum would count the first result once per rank: refused by name."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model, lr=0.03), model, op=hvd.Sum)
    optimizer.zero_grad()
    if not job.is_oracle:
        job.backward(job.regression(model, 90))
        error = job.expect(lambda: job.backward(job.regression(model, 91)), "no_sync()")
        assert any(name in str(error) for name, _ in model.named_parameters()), error
    optimizer.zero_grad()
    job.train(model, optimizer, 3)
    return model


def habit_two_backwards_over_other_parameters_with_sum(job):
    """The second backward adds to no result: allowed for every operation."""
    first, second = job.net(4, 6, 3, seed=1), job.net(4, 6, 3, seed=2)
    both = torch.nn.ModuleList([first, second])
    optimizer = job.wrap(job.sgd(both, lr=0.03), both, op=hvd.Sum)
    for step in range(3):
        optimizer.zero_grad()
        job.backward(job.regression(first, step))
        job.backward(job.regression(second, step))
        optimizer.step()
    return both


def habit_a_second_backward_misses_parameters_on_one_rank(job):
    """p.grad holds a result R there: the sum is (R + (R + g)) / 2, and not (R + g) / 2."""
    a, b = job.parameter(4, seed=1), job.parameter(4, seed=2)
    optimizer = job.wrap(torch.optim.SGD([a, b], lr=0.1))
    for step in range(3):
        optimizer.zero_grad()
        job.backward(lambda r: ((a + b) * job.data(r, step, 4)).sum())
        job.backward(lambda r: ((a if r else b) * job.data(r, step + 20, 4)).sum())
        optimizer.step()
    return [a, b]


def habit_retain_graph_and_backward_again(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        losses = {r: job.regression(model, step)(r) for r in range(job.size)}
        job.backward(lambda r: losses[r], retain_graph=True)
        job.backward(lambda r: losses[r])
        optimizer.step()
    return model


def habit_gradients_are_thrown_away(job):
    """zero_grad() between backward and step, as under DDP: that step has no gradients."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(4):
        optimizer.zero_grad()
        job.backward(job.regression(model, step))
        if step % 2:
            optimizer.zero_grad()
        optimizer.step()
    return model


def habit_backward_without_step(job):
    """A sanity pass before training: backward, zero_grad, no step."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    job.backward(job.regression(model, 70))
    optimizer.zero_grad()
    job.train(model, optimizer, 2)
    job.backward(job.regression(model, 71))
    model.zero_grad()
    job.train(model, optimizer, 2, first=2)
    return model


def habit_gradients_of_several_steps_add_up(job):
    """A script that zeroes every second step: the old result is kept in p.grad."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(4):
        if step % 2 == 0:
            optimizer.zero_grad(set_to_none=False)
        job.backward(job.regression(model, step))
        optimizer.step()
    return model


def habit_the_number_of_passes_changes(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model, backward_passes_per_step=2)
    for passes in (2, 1, 3):
        if not job.is_oracle:
            optimizer.set_backward_passes_per_step(passes)
        for step in range(2):
            optimizer.zero_grad()
            with job.no_sync(optimizer) if job.is_oracle else torch.enable_grad():
                for part in range(passes):
                    job.backward(job.regression(model, 100 * passes + 10 * step + part))
            optimizer.step()
    return model


def habit_gradient_penalty(job):
    """create_graph: the gradient with respect to the input is part of the loss (WGAN-GP)."""
    model = job.net(4, 8, 1)
    optimizer = job.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model)

    def loss(r, step):
        x = job.data(r, step, 6, 4).requires_grad_()
        out = model(x).sum()
        (slope,) = torch.autograd.grad(out, x, create_graph=True)
        return out + 10 * (slope.norm(dim=1) - 1).pow(2).mean()

    for step in range(3):
        optimizer.zero_grad()
        job.backward(lambda r: loss(r, step))
        optimizer.step()
    return model


def habit_second_derivatives_of_gradients(job):
    """backward(create_graph=True), then the penalty of p.grad itself: right, or refused by name."""
    weight = job.parameter(4, seed=1)
    optimizer = job.wrap(torch.optim.SGD([weight], lr=0.01), [("weight", weight)])
    optimizer.zero_grad()

    def twice(r):
        (weight**3 * (r + 1)).sum().backward(create_graph=True)
        (weight.grad**2).sum().backward()

    if job.is_oracle:
        return _second_derivatives(job, weight)
    try:
        twice(job.rank)
    except Exception as error:
        assert "weight" in str(error) or "does not require grad" in str(error), error
        return _second_derivatives(job, weight)
    optimizer.step()
    return [weight]


def _second_derivatives(job, weight):
    """The first gradient is R = mean of 3 (r + 1) w^2; of R^2, with respect to w through this rank's part alone."""
    w = weight.detach()
    ranks = torch.arange(1, job.size + 1, dtype=w.dtype)
    first = 3 * ranks.mean() * w**2
    second = torch.stack([2 * first * 6 * r * w for r in ranks]).mean(0)
    return [w - 0.01 * (first + second)]


def habit_meta_learning(job):
    """MAML: inner steps by autograd.grad, and the outer loss through them."""
    model = job.net(4, 6, 2)
    optimizer = job.wrap(torch.optim.Adam(model.parameters(), lr=0.02), model)
    names = [name for name, _ in model.named_parameters()]

    def outer(r, step):
        fast = dict(model.named_parameters())
        for inner in range(2):
            x, y = job.data(r, 30 * step + inner, 5, 4), job.data(r, 30 * step + inner + 9, 5, 2)
            loss = mse(lambda x: torch.func.functional_call(model, fast, (x,)), x, y)
            slopes = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {name: value - 0.1 * slope for name, value, slope in zip(names, fast.values(), slopes)}
        return mse(lambda x: torch.func.functional_call(model, fast, (x,)), job.data(r, 30 * step + 20, 5, 4), 0.3)

    for step in range(3):
        optimizer.zero_grad()
        job.backward(lambda r: outer(r, step))
        optimizer.step()
    return model


def habit_closure(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):

        def closure():
            optimizer.zero_grad()
            return job.backward(job.regression(model, step))

        optimizer.step(closure)
    return model


def _lbfgs(job, line_search):
    model = job.net(4, 5, 2)
    optimizer = job.wrap(torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=6, line_search_fn=line_search), model)
    for step in range(2):

        def closure():
            optimizer.zero_grad()
            return job.backward(lambda r: job.regression(model, step)(r) * (1 + 3 * r))

        optimizer.step(closure)
    return model


def habit_lbfgs(job):
    return _lbfgs(job, None)


def habit_lbfgs_with_a_line_search(job):
    """Each rank has its own loss: without the average the ranks evaluate the closure differently often."""
    job.tolerance = 5e-3
    return _lbfgs(job, "strong_wolfe")


def _summed(job, zero):
    model = job.net()
    optimizer = job.wrap(job.sgd(model, lr=0.03), model, op=hvd.Sum)
    for step in range(3):
        zero(model, optimizer)
        job.backward(job.regression(model, step))
        optimizer.step()
    return model


def habit_sums_with_gradients_that_are_set_to_zero(job):
    """Gradients that zero_grad() fills with zeros are no results any more."""
    return _summed(job, lambda model, optimizer: optimizer.zero_grad(set_to_none=False))


def habit_sums_with_gradients_that_the_model_sets_to_zero(job):
    return _summed(job, lambda model, optimizer: model.zero_grad(set_to_none=False))


def habit_sums_with_gradients_that_are_cleared_by_hand(job):
    return _summed(job, lambda model, optimizer: [p.grad.zero_() for p in model.parameters() if p.grad is not None])


def habit_sums_without_zero_grad(job):
    """The next step's backward would add to a result: refused by name, as within one step."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model, lr=0.03), model, op=hvd.Sum)
    if not job.is_oracle:
        job.backward(job.regression(model, 90), retain_graph=False)
        error = job.expect(lambda: job.backward(job.regression(model, 91)), "no_sync()")
        assert any(name in str(error) for name, _ in model.named_parameters()), error
    optimizer.zero_grad()
    job.train(model, optimizer, 3)
    return model
