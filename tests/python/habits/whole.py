"""The optimizer as an object: plain and wrapped, schedulers, states, groups, copies, several optimizers."""

import copy
import io
import pickle
import warnings

import torch
from job import mse
from torch import nn
from torch.optim import lr_scheduler

import horo.torch as hvd


def habit_wrapped_and_plain_are_one(job):
    model = job.net()
    plain = job.sgd(model)
    optimizer = job.wrap(plain, model)
    assert optimizer is plain and isinstance(plain, torch.optim.SGD) and type(plain).__name__ == "SGD"
    job.train(model, optimizer, 3)
    return model


def habit_step_of_the_plain_optimizer(job):
    """The script keeps the plain optimizer, and forgets the result of wrapping."""
    model = job.net()
    plain = job.sgd(model)
    job.wrap(plain, model)
    job.train(model, plain, 3)
    return model


def habit_a_step_function_from_before_wrapping(job):
    model = job.net()
    plain = job.sgd(model)
    step_of_plain = plain.step
    job.wrap(plain, model)
    for step in range(3):
        plain.zero_grad()
        job.backward(job.regression(model, step))
        step_of_plain()
    return model


def habit_add_param_group_on_the_plain_optimizer(job):
    first, second = job.net(4, 6, seed=1), job.net(6, 3, seed=2)
    plain = job.sgd(first)
    optimizer = job.wrap(plain, first)
    both = nn.Sequential(first, nn.Tanh(), second)
    job.train(first, optimizer, 2)
    plain.add_param_group({"params": list(second.parameters()), "lr": 0.05})
    job.train(both, optimizer, 3, first=2)
    return both


def habit_add_param_group_on_the_wrapped_optimizer(job):
    first, second = job.net(4, 6, seed=1), job.net(6, 3, seed=2)
    optimizer = job.wrap(job.sgd(first))
    both = nn.Sequential(first, nn.Tanh(), second)
    optimizer.add_param_group({"params": list(second.parameters()), "lr": 0.05})
    job.train(both, optimizer, 3)
    return both


def habit_a_group_is_changed_in_place(job):
    """param_groups is a list that scripts edit: a parameter is appended to the first group."""
    model, extra = job.net(), job.parameter(3, seed=4)
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 2)
    optimizer.param_groups[0]["params"].append(extra)
    for step in range(2, 5):
        optimizer.zero_grad()
        job.backward(lambda r: mse(lambda x: model(x) + extra, job.data(r, step, 5, 4), 0.5))
        optimizer.step()
    return {"extra": extra, **dict(model.named_parameters())}


def habit_load_state_dict_into_the_plain_optimizer(job):
    model = job.net()
    plain = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer = job.wrap(plain, model)
    job.train(model, optimizer, 2)
    saved = copy.deepcopy(plain.state_dict())
    job.train(model, optimizer, 2, first=2)
    plain.load_state_dict(saved)
    job.train(model, optimizer, 2, first=4)
    optimizer.load_state_dict(saved)
    job.train(model, optimizer, 2, first=6)
    return model


def habit_resume_from_a_checkpoint(job):
    """Rank 0 alone has the checkpoint, as bytes; its state is broadcast."""
    model, file = job.net(), io.BytesIO()
    optimizer = job.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model)
    job.train(model, optimizer, 3)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    again = job.net(seed=50 + job.rank)
    plain = torch.optim.Adam(again.parameters(), lr=0.5)
    if job.rank == 0:
        saved = torch.load(io.BytesIO(file.getvalue()))
        again.load_state_dict(saved["model"])
        plain.load_state_dict(saved["optimizer"])
    del optimizer
    optimizer = job.wrap(plain, again)
    if not job.is_oracle:
        hvd.broadcast_parameters(again.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    job.train(again, optimizer, 3, first=3)
    return again


def _scheduled(job, make_before, make_after=None, steps=5):
    model = job.net()
    plain = job.sgd(model, momentum=0.8)
    schedulers = [make(plain) for make in make_before]
    optimizer = job.wrap(plain, model)
    schedulers += [make(optimizer) for make in make_after or []]
    rates = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(steps):
            job.train(model, optimizer, 1, first=step)
            for scheduler in schedulers:
                scheduler.step()
            rates.append(optimizer.param_groups[0]["lr"])
    false = [str(warning.message) for warning in caught if "lr_scheduler.step()" in str(warning.message)]
    assert not false, false
    return {"rates": torch.tensor(rates), **dict(model.named_parameters())}


def _halving(optimizer):
    return lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)


def habit_a_scheduler_made_before_wrapping(job):
    return _scheduled(job, [_halving])


def habit_a_scheduler_made_after_wrapping(job):
    return _scheduled(job, [], [_halving])


def habit_two_schedulers_around_wrapping(job):

    def decay(optimizer):
        return lr_scheduler.ExponentialLR(optimizer, 0.9)

    return _scheduled(job, [_halving], [decay])


def habit_a_one_cycle_schedule_made_before_wrapping(job):

    def cycle(optimizer):
        return lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=8)

    return _scheduled(job, [cycle])


def habit_a_sequence_of_schedules(job):
    def sequence(optimizer):
        warmup = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
        cosine = lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
        return lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[2])

    return _scheduled(job, [sequence])


def _broadcast_with_scheduler(job, on_wrapped):
    """Ranks begin with different rates; those of rank 0 count, and its schedule goes on, on all ranks."""
    model = job.net(seed=10 + job.rank)
    plain = job.sgd(model, lr=0.1 * (1 + job.rank))
    scheduler = lr_scheduler.StepLR(plain, step_size=1, gamma=0.7)
    optimizer = job.wrap(plain, model)
    if not job.is_oracle:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer if on_wrapped else plain, root_rank=0)
    for step in range(4):
        job.train(model, optimizer, 1, first=step)
        scheduler.step()
    return {"rate": torch.tensor(plain.param_groups[0]["lr"]), **dict(model.named_parameters())}


def habit_a_scheduler_and_broadcast_optimizer_state(job):
    return _broadcast_with_scheduler(job, on_wrapped=True)


def habit_a_scheduler_and_broadcast_of_the_plain_state(job):
    return _broadcast_with_scheduler(job, on_wrapped=False)


def habit_plateau_schedule_of_a_reduced_loss(job):
    model = job.net()
    plain = job.sgd(model)
    scheduler = lr_scheduler.ReduceLROnPlateau(plain, patience=0, factor=0.5)
    optimizer = job.wrap(plain, model)
    for step in range(5):
        optimizer.zero_grad()
        loss = job.backward(job.regression(model, step)).detach()
        scheduler.step(loss if job.is_oracle else hvd.allreduce(loss, name="loss"))
        optimizer.step()
    return {"rate": torch.tensor(plain.param_groups[0]["lr"]), **dict(model.named_parameters())}


def habit_step_hooks_from_before_wrapping(job):
    model, calls = job.net(), []
    plain = job.sgd(model)
    plain.register_step_pre_hook(lambda *_: calls.append(model[0].weight.grad.sum().item()))
    plain.register_step_post_hook(lambda *_: calls.append(1.0))
    optimizer = job.wrap(plain, model)
    job.train(model, optimizer, 3)
    return {"calls": torch.tensor(calls), **dict(model.named_parameters())}


def _copied(job, copied):
    """A copy of model and optimizer trains like the original, or is refused at once, with the reason."""
    model = job.net()
    optimizer = job.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model)
    job.train(model, optimizer, 2)
    if job.is_oracle:
        job.train(model, optimizer, 2, first=2)
        return model
    try:
        other, others = copied((model, optimizer))
    except Exception as error:
        assert "state_dict" in str(error), f"{error!r} does not name state_dict()"
        job.train(model, optimizer, 2, first=2)
        return model
    job.train(other, others, 2, first=2)
    return other


def habit_deepcopy(job):
    return _copied(job, copy.deepcopy)


def habit_pickle(job):
    return _copied(job, lambda pair: pickle.loads(pickle.dumps(pair)))


def habit_the_original_after_a_deepcopy(job):
    model = job.net()
    optimizer = job.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model)
    job.train(model, optimizer, 2)
    if not job.is_oracle:
        try:
            copies = copy.deepcopy((model, optimizer))
            del copies
        except Exception as error:
            assert "state_dict" in str(error), error
    job.train(model, optimizer, 2, first=2)
    return model


def habit_deepcopy_of_a_model_after_backward(job):
    """Early stopping keeps copies of the model, gradients included."""
    model = job.net()
    optimizer = job.wrap(job.sgd(model), model)
    job.train(model, optimizer, 2)
    best = copy.deepcopy(model)
    job.train(model, optimizer, 2, first=2)
    model.load_state_dict(best.state_dict())
    job.train(model, optimizer, 1, first=4)
    return model


def habit_every_optimizer_of_torch(job):
    job.tolerance = 5e-3
    kinds = {
        "Adam": {"amsgrad": True, "foreach": True},
        "AdamW": {"fused": True},
        "Adamax": {},
        "NAdam": {},
        "RAdam": {},
        "RMSprop": {"momentum": 0.5},
        "Adagrad": {"fused": True},
        "Adadelta": {},
        "ASGD": {},
        "Rprop": {},
        "Adafactor": {},
        "SGD": {"fused": True, "nesterov": True, "momentum": 0.9},
    }
    result = {}
    for kind, options in kinds.items():
        model = job.net()
        optimizer = job.wrap(getattr(torch.optim, kind)(model.parameters(), lr=0.01, **options), model)
        job.train(model, optimizer, 3)
        result |= {f"{kind} {name}": param.detach() for name, param in model.named_parameters()}
    return result


def habit_a_learning_rate_that_is_a_tensor(job):
    model = job.net()
    rate = torch.tensor(0.1, dtype=torch.float32)
    optimizer = job.wrap(torch.optim.AdamW(model.parameters(), lr=rate), model)
    for step in range(3):
        job.train(model, optimizer, 1, first=step)
        rate *= 0.5
    return model


def habit_an_optimizer_of_the_user(job):
    class Signs(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for param in group["params"]:
                    if param.grad is not None:
                        param -= group["lr"] * param.grad.sign() * param.grad.abs().sqrt()

    model = job.net()
    optimizer = job.wrap(Signs(model.parameters(), 0.05), model)
    job.train(model, optimizer, 3)
    return model


def habit_groups_with_rates_of_their_own(job):
    model = job.net()
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() == 1], "lr": 0.2},
    ]
    optimizer = job.wrap(torch.optim.SGD(groups, lr=0.1, momentum=0.9))
    job.train(model, optimizer, 2)
    optimizer.param_groups[0]["lr"] = 0.01
    job.train(model, optimizer, 2, first=2)
    return model
