"""What scripts do with reduced gradients between backward() and step()."""

import copy

import torch

import horo.torch as hvd


def _steps(job, change, count=4, make=None, **options):
    """Ordinary steps of a small model. change(params, optimizer) runs between backward and step."""
    model = job.net()
    make = make or job.sgd
    optimizer = job.wrap(make(model), model, **options)
    for step in range(count):
        optimizer.zero_grad()
        job.backward(job.regression(model, step))
        change(list(model.parameters()), optimizer)
        optimizer.step()
    return model


def habit_reading_gradients(job):
    """The norm of a gradient, as it is logged, is that of the reduced one."""
    norms = []
    model = _steps(job, lambda params, _: norms.append(torch.stack([p.grad.norm() for p in params])))
    return {"norms": torch.stack(norms), **dict(model.named_parameters())}


def habit_clip_grad_norm(job):
    return _steps(job, lambda params, _: torch.nn.utils.clip_grad_norm_(params, 0.05))


def habit_clip_grad_norm_with_bucket_views(job):
    return _steps(job, lambda params, _: torch.nn.utils.clip_grad_norm_(params, 0.05), gradient_as_bucket_view=True)


def habit_clip_grad_value(job):
    return _steps(job, lambda params, _: torch.nn.utils.clip_grad_value_(params, 0.02))


def _clamp_data(params, _):
    for param in params:
        param.grad.data.clamp_(-0.02, 0.02)


def habit_clamp_the_data_of_gradients(job):
    return _steps(job, _clamp_data)


def habit_clamp_the_data_of_gradients_with_bucket_views(job):
    return _steps(job, _clamp_data, gradient_as_bucket_view=True)


def _replace(params, _):
    for param in params:
        param.grad = param.grad.clamp(-0.02, 0.02)


def habit_replace_gradients(job):
    return _steps(job, _replace)


def habit_replace_gradients_with_bucket_views(job):
    return _steps(job, _replace, gradient_as_bucket_view=True)


def habit_replace_gradients_in_groups(job):
    return _steps(job, _replace, num_groups=2)


def _drop(params, _):
    params[0].grad = None
    params[-1].grad = None


def habit_drop_gradients(job):
    return _steps(job, _drop)


def habit_drop_gradients_with_bucket_views(job):
    return _steps(job, _drop, gradient_as_bucket_view=True)


def habit_scale_gradients_with_foreach(job):
    return _steps(job, lambda params, _: torch._foreach_mul_([p.grad for p in params], 0.25))


def habit_centralize_gradients(job):
    def centralize(params, _):
        for param in params:
            if param.dim() > 1:
                param.grad.add_(-param.grad.mean(dim=1, keepdim=True))

    return _steps(job, centralize, make=lambda model: torch.optim.Adam(model.parameters(), lr=0.01))


def habit_copy_gradients_through_numpy(job):
    def through(params, _):
        for param in params:
            param.grad.numpy()[...] *= 0.5

    return _steps(job, through)


def habit_synchronize_and_clip_as_in_horovod(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        job.backward(job.regression(model, step))
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        with optimizer.skip_synchronize():
            optimizer.step()
    return model


def habit_clip_before_a_cross_barrier_step(job):
    """cross_barrier alone goes on past backward: what it cannot do right it refuses by name."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model, cross_barrier=not job.is_oracle)

    def clipped():
        for step in range(3, 6):
            optimizer.zero_grad()
            job.backward(job.regression(model, step))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
        optimizer.synchronize()

    job.train(model, optimizer, 3)
    optimizer.synchronize()
    if job.is_oracle:
        clipped()
        return model
    before = copy.deepcopy(model.state_dict())
    try:
        clipped()
    except Exception as error:
        assert "synchronize()" in str(error), error
        model.load_state_dict(before)
        return _clipped_oracle(job)
    return model


def _clipped_oracle(job):
    """Refused: the rest is trained with an ordinary optimizer."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), [(f"again {n}", p) for n, p in model.named_parameters()])
    job.train(model, optimizer, 3)
    for step in range(3, 6):
        optimizer.zero_grad()
        job.backward(job.regression(model, step))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
    return model


def habit_moving_average_of_weights(job):
    model = job.net()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(4):
        job.train(model, optimizer, 1, first=step)
        average.update_parameters(model)
    return {"average": torch.cat([p.flatten() for p in average.module.parameters()]), **dict(model.named_parameters())}


def habit_sharpness_aware_minimization(job):
    """Two backward passes per step: the second one at weights that the first one moved."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(4):
        optimizer.zero_grad()
        job.backward(job.regression(model, step))
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            moves = [p.grad * (0.05 / norm) for p in model.parameters()]
            torch._foreach_add_(list(model.parameters()), moves)
        optimizer.zero_grad()
        job.backward(job.regression(model, step))
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moves)
        optimizer.step()
    return model


def habit_lookahead_of_gradients_of_two_losses(job):
    """PCGrad: gradients of two losses are taken one after the other, kept, projected and written back."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    params = list(model.parameters())
    for step in range(3):
        taken = []
        for part in range(2):
            optimizer.zero_grad()
            job.backward(job.regression(model, 10 * step + part))
            taken.append(torch.cat([p.grad.flatten() for p in params]))
        a, b = taken
        a = a - (a @ b).clamp(max=0.0) / b.pow(2).sum() * b
        for param, part in zip(params, (a + b).split([p.numel() for p in params])):
            param.grad = part.view_as(param)
        optimizer.step()
    return model


def _scaled(job, make, **options):
    """An infinity on one rank, in the third step: all ranks skip it, and go on with half the scale."""
    model = job.net()
    optimizer = job.wrap(make(model), model, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=3)
    for step in range(6):
        optimizer.zero_grad()

        def loss_of(r):
            loss = job.regression(model, step)(r)
            return scaler.scale(loss * float("inf") if step == 2 and r == 1 else loss)

        job.backward(loss_of)
        scaler.step(optimizer)
        scaler.update()
    return {"scale": torch.tensor(scaler.get_scale()), **dict(model.named_parameters())}


def habit_gradient_scaler(job):
    return _scaled(job, job.sgd)


def habit_gradient_scaler_with_bucket_views(job):
    return _scaled(job, job.sgd, gradient_as_bucket_view=True)


def habit_gradient_scaler_with_fused_adam(job):
    return _scaled(job, lambda model: torch.optim.Adam(model.parameters(), lr=0.01, fused=True))


def habit_gradient_scaler_with_fused_sgd(job):
    return _scaled(job, lambda model: job.sgd(model, fused=True))


def habit_unscale_and_clip(job):
    model = job.net()
    optimizer = job.wrap(torch.optim.AdamW(model.parameters(), lr=0.01), model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**6)
    for step in range(4):
        optimizer.zero_grad()
        job.backward(lambda r: scaler.scale(job.regression(model, step)(r)))
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
    return model


def habit_noise_on_gradients(job):
    """From a generator that all ranks have alike."""
    noise = torch.Generator().manual_seed(7)

    def add(params, _):
        for param in params:
            param.grad += 0.1 * torch.randn(param.shape, generator=noise).to(param.dtype)

    return _steps(job, add)


def habit_step_skipped_by_the_script(job):
    """A step whose gradients are too large is left out, on all ranks alike because the norm is that of the result."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    norms = []
    for step in range(5):
        optimizer.zero_grad()
        job.backward(lambda r: job.regression(model, step)(r) * (50.0 if step % 2 and r == 2 else 1.0))
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))
        if norms[-1] < 2.0:
            optimizer.step()
    return {"norms": torch.stack(norms), **dict(model.named_parameters())}


def habit_sum_and_scale_by_hand(job):
    """op=Sum, and the script divides by the number of ranks."""

    def divide(params, _):
        for param in params:
            param.grad /= job.size

    return _steps(job, divide, op=hvd.Sum)
