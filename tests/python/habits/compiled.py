"""Graphs of other kinds: compiled, checkpointed, functional, parametrized, of other dtypes, with collectives inside."""

import contextlib

import torch
from job import mse
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import horo.torch as hvd


def _compiled(job, backend):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    forward = model if job.is_oracle else torch.compile(model, backend=backend)
    for step in range(4):
        optimizer.zero_grad()
        job.backward(lambda r: mse(forward, job.data(r, step, 5, 4), 0.5))
        optimizer.step()
    return model


def habit_compile_eager(job):
    return _compiled(job, "eager")


def habit_compile_aot_eager(job):
    return _compiled(job, "aot_eager")


@contextlib.contextmanager
def _compiled_autograd(job):
    if job.is_oracle:
        yield
        return
    from torch._dynamo import compiled_autograd

    with compiled_autograd._enable(torch.compile(backend="eager")):
        yield


def _compiled_backward(job, between=lambda params: None):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(4):
        optimizer.zero_grad()
        with _compiled_autograd(job):
            job.backward(job.regression(model, step))
        between(list(model.parameters()))
        optimizer.step()
    return model


def habit_compiled_autograd(job):
    return _compiled_backward(job)


def habit_compiled_autograd_and_clipping(job):
    return _compiled_backward(job, lambda params: torch.nn.utils.clip_grad_norm_(params, 0.05))


def _right_or_refused(job, run, other):
    """run(), or, where horo refuses it by name and says what to do, other()."""
    try:
        return run()
    except RuntimeError as error:
        wanted = ("gradient ", "bias", "use_reentrant=False", "no_sync()")
        assert all(part in str(error) for part in wanted), error
        job.agree()
    return other()


def _reentrant(job, **options):
    """Gradients of a layer in several reentrant checkpoints are complete several times."""
    return _right_or_refused(
        job, lambda: _checkpointed(job, True, **options), lambda: _checkpointed(job, False, **options)
    )


def _checkpointed(job, reentrant, **options):
    """One layer is used twice, each time within a checkpoint."""
    first, layer, last = job.net(4, 6, seed=1), job.net(6, 6, seed=2), job.net(6, 2, seed=3)
    model = nn.ModuleList([first, layer, last])
    optimizer = job.wrap(job.sgd(model), model, **options)

    def loss(r, step):
        x = torch.tanh(first(job.data(r, step, 5, 4)))
        for _ in range(2):
            x = checkpoint(lambda x: torch.tanh(layer(x)), x, use_reentrant=reentrant)
        return (last(x) ** 2).mean()

    for step in range(4):
        optimizer.zero_grad()
        job.backward(lambda r: loss(r, step))
        optimizer.step()
    return model


def habit_reentrant_checkpoints_of_a_layer_used_twice(job):
    return _reentrant(job)


def habit_reentrant_checkpoints_with_bucket_views(job):
    return _reentrant(job, gradient_as_bucket_view=True)


def habit_reentrant_checkpoints_with_sum(job):
    return _reentrant(job, op=hvd.Sum)


def habit_reentrant_checkpoints_in_groups(job):
    return _reentrant(job, num_groups=2)


def habit_checkpoints_of_a_layer_used_twice(job):
    return _checkpointed(job, False)


def _checkpointed_sequence(job, lr, *sizes):
    model = job.net(*sizes)
    optimizer = job.wrap(job.sgd(model, lr=lr), model)

    def x(r, step):
        return job.data(r, step, 5, sizes[0]).requires_grad_()

    for step in range(3):
        optimizer.zero_grad()
        job.backward(lambda r: (checkpoint_sequential(model, 3, x(r, step), use_reentrant=True) ** 2).mean())
        optimizer.step()
    return model


def habit_sequence_of_reentrant_checkpoints(job):
    return _checkpointed_sequence(job, 0.05, 4, 6, 6, 6, 3)


def habit_large_layers_in_reentrant_checkpoints(job):
    return _checkpointed_sequence(job, 0.01, 140, 140, 140, 3)


def habit_a_backward_inside_a_backward(job):
    """A function of the script runs a backward of its own, over the same parameters, within its backward."""
    return _right_or_refused(job, lambda: _nested(job), lambda: _nested(job, local=True))


def _nested(job, local=False):
    """local: the pass runs in no_sync(), and step() reduces."""
    inner, outer = job.net(4, 4, seed=1), job.net(4, 3, seed=2)
    model = nn.ModuleList([inner, outer])
    optimizer = job.wrap(job.sgd(model), model)

    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                (inner(x.detach()) * gradient.detach()).sum().backward()
            return gradient

    for step in range(3):
        optimizer.zero_grad()
        with job.no_sync(optimizer) if local else contextlib.nullcontext():
            job.backward(lambda r: (outer(torch.tanh(Nested.apply(inner(job.data(r, step, 5, 4))))) ** 2).mean())
        optimizer.step()
    return model


def habit_gradients_of_torch_func(job):
    """torch.func.grad, written into p.grad: step() reduces."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    params = dict(model.named_parameters())

    def gradients(r, step):
        x, y = job.data(r, step, 5, 4), job.data(r, step + 9, 5, 3)

        def loss(weights):
            return ((torch.func.functional_call(model, weights, (x,)) - y) ** 2).mean()

        return torch.func.grad(loss)({name: param.detach() for name, param in params.items()})

    for step in range(3):
        parts = [gradients(r, step) for r in range(job.size)]
        for name, param in params.items():
            mine = [part[name] for part in parts]
            param.grad = sum(mine) / job.size if job.is_oracle else mine[job.rank]
        optimizer.step()
    return model


def habit_scripted_and_traced_models(job):
    model = job.net()
    traced = torch.jit.trace(model, job.same(5, 4))
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        job.backward(lambda r: mse(traced, job.data(r, step, 5, 4), 0.5))
        optimizer.step()
    return model


def habit_saved_tensors_on_the_cpu(job):
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        with torch.autograd.graph.save_on_cpu():
            job.backward(job.regression(model, step))
        optimizer.step()
    return model


def habit_weight_norm(job):
    model = job.net()
    torch.nn.utils.parametrizations.weight_norm(model[0])
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 4)
    return model


def habit_a_parametrization_added_after_wrapping(job):
    """The parameter of the optimizer moves to another module, under another name."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 2)

    class Symmetric(nn.Module):
        def forward(self, w):
            return w * 0.5 + w.abs() * 0.1

    nn.utils.parametrize.register_parametrization(model[2], "weight", Symmetric())
    job.train(model, optimizer, 2, first=2)
    return model


def habit_an_lstm(job):
    torch.manual_seed(4)
    model = nn.LSTM(4, 5, num_layers=2, batch_first=True).to(job.dtype)
    optimizer = job.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model)
    for step in range(3):
        optimizer.zero_grad()
        job.backward(lambda r: (model(job.data(r, step, 3, 6, 4))[0] ** 2).mean())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    return model


def habit_a_transformer_layer(job):
    torch.manual_seed(4)
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(job.dtype)
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        job.backward(lambda r: (model(job.data(r, step, 2, 5, 8)) ** 2 * job.data(r, step, 2, 5, 8)).mean())
        optimizer.step()
    return model


def _of_dtype(job, dtype, **options):
    model = job.net().to(dtype)
    optimizer = job.wrap(job.sgd(model), model, **options)
    for step in range(4):
        optimizer.zero_grad()
        x, y = (lambda r: job.data(r, step, 5, 4).to(dtype)), (lambda r: job.data(r, step + 9, 5, 3).to(dtype))
        job.backward(lambda r: mse(model, x(r), y(r)))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.2)
        optimizer.step()
    return model


def habit_double_precision(job):
    job.tolerance = 1e-12
    return _of_dtype(job, torch.float64)


def habit_bfloat16(job):
    job.tolerance = 0.03
    return _of_dtype(job, torch.float64 if job.is_oracle else torch.bfloat16)


def habit_bfloat16_with_bucket_views(job):
    job.tolerance = 0.03
    return _of_dtype(job, torch.float64 if job.is_oracle else torch.bfloat16, gradient_as_bucket_view=True)


def habit_autocast(job):
    model = job.net()
    job.tolerance = 0.03
    optimizer = job.wrap(job.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()

        def loss_of(r):
            with torch.autocast("cpu", torch.bfloat16, enabled=not job.is_oracle):
                out = model(job.data(r, step, 5, 4))
            return (out.to(job.dtype) ** 2).mean()

        job.backward(loss_of)
        optimizer.step()
    return model


def habit_complex_parameters(job):
    wide = torch.complex128 if job.is_oracle else torch.complex64
    weight = nn.Parameter(torch.complex(job.same(3, 4, seed=1), job.same(3, 4, seed=2)).to(wide))
    real = job.parameter(3, seed=3)
    optimizer = job.wrap(torch.optim.Adam([weight, real], lr=0.05), [("weight", weight), ("real", real)])
    for step in range(3):
        optimizer.zero_grad()

        def x(r):
            return torch.complex(job.data(r, step, 4), job.data(r, step + 9, 4)).to(wide)

        job.backward(lambda r: ((weight @ x(r)).abs() ** 2 * real).sum())
        optimizer.step()
    return [torch.view_as_real(weight), real]


def habit_parameters_of_several_dtypes(job):
    a = job.parameter(4, seed=1)
    b = nn.Parameter(job.same(4, seed=2).double())
    c = nn.Parameter(job.same(4, seed=3).to(job.dtype if job.is_oracle else torch.bfloat16))
    job.tolerance = 0.03
    optimizer = job.wrap(torch.optim.SGD([a, b, c], lr=0.05))
    for step in range(4):
        optimizer.zero_grad()

        def x(r):
            return job.data(r, step, 4)

        job.backward(lambda r: ((a * x(r)).tanh().double() * b + (c.double() * x(r).double()) ** 2).sum())
        optimizer.step()
    return [a, b, c]


def habit_a_loss_averaged_inside_the_graph(job):
    """A collective with a gradient, which is another collective within backward."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)

    def loss_of(r, step):
        loss = job.regression(model, step)(r)
        return loss if job.is_oracle else hvd.allreduce(loss, name="loss")

    for step in range(3):
        optimizer.zero_grad()
        job.backward(lambda r: loss_of(r, step))
        optimizer.step()
    return model


def habit_full_backward_hooks_of_modules(job):
    model, seen = job.net(), []
    for layer in model:
        layer.register_full_backward_hook(lambda *_: seen.append(1))
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 3)
    assert seen
    return model


def habit_a_hook_that_changes_the_local_gradient(job):
    """register_hook runs before the reduction, as under DDP: the ranks' clipped gradients are averaged."""
    model = job.net()
    for param in model.parameters():
        param.register_hook(lambda gradient: gradient.clamp(-0.02, 0.02))
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 4)
    return model
