"""What scripts do under other divided optimizers, and what went wrong there: each with the bits of plain horo, or an
error that says what to do. The functions are in the order of the threads in which users reported the faults."""

import contextlib
import copy
import random
import time

import torch
from raising import raises
from torch import nn
from zero_models import (
    Muon,
    Odd,
    adam,
    alike,
    batches,
    divided_state_bytes,
    loss_of,
    sha,
    sha_of,
    sha_of_state,
    train,
    wrapped,
)

import horo
import horo.torch as hvd

torch.set_num_threads(1)
hvd.init()
ME, SIZE = hvd.rank(), hvd.size()


def passes_without_reduction():
    def script(kind):
        model = Odd()
        optimizer = adam(model, kind)
        for words in zip(*[iter(batches(ME, 9))] * 3):
            optimizer.zero_grad()
            for number, batch in enumerate(words):
                with optimizer.no_sync() if number < 2 else contextlib.nullcontext():
                    loss_of(model, batch).backward()
            optimizer.step()
        return sha_of(model)

    alike(script)


def a_norm_does_not_depend_on_the_ranks():
    for scale in (1.0, 1e-6):
        model = nn.Linear(300, 3)
        optimizer = wrapped("zero", torch.optim.SGD(model.parameters(), lr=0.1), model)
        for param in model.parameters():
            param.data.fill_(1.0)
        (model(torch.full((1, 300), scale)).sum() * scale).backward()
        expected = torch.cat([param.grad.flatten() for param in model.parameters()]).norm()
        assert torch.equal(nn.utils.clip_grad_norm_(model.parameters(), 1.0), expected)
        assert abs(expected.item() - (3 * (300 * scale**4 + scale**2)) ** 0.5) < 1e-6 * expected.item()
        optimizer.step()


def delays_change_no_bit():
    def script(kind):
        draw, found = random.Random(ME), []
        for seed in range(1 if kind == "plain" else 5):
            model = Odd()
            optimizer = adam(model, kind)
            for param in model.parameters() if kind == "zero" else ():
                if param.requires_grad:
                    param.register_hook(lambda _: time.sleep(draw.random() * 1e-3))
            train(model, optimizer, batches(ME, 3))
            found.append(sha_of(model))
        return set(found)

    alike(script)


def ranks_may_use_other_parameters():
    def script(kind):
        torch.manual_seed(3)
        model = nn.ModuleList(nn.Linear(20, 20) for _ in range(3))
        optimizer = adam(model, kind)
        for step in range(6):
            optimizer.zero_grad()
            order = [model[0], model[1 + (ME + step) % 2]][:: 1 if ME else -1]
            hidden = torch.ones(2, 20) * (1 + ME)
            for layer in order:
                hidden = layer(hidden)
            hidden.square().mean().backward()
            optimizer.step()
        return sha_of(model)

    alike(script)


def heads_take_turns_and_one_rank_branches():
    def script(kind):
        torch.manual_seed(3)
        model = nn.ModuleList(nn.Linear(20, 20) for _ in range(4))
        optimizer = adam(model, kind)
        for step in range(6):
            optimizer.zero_grad()
            hidden = model[1 + step % 2](model[0](torch.ones(2, 20)))
            if ME == 0 and step > 2:
                hidden = model[3](hidden)
            hidden.square().mean().backward()
            optimizer.step()
        return sha_of(model)

    alike(script)


def forward_makes_no_collective():
    model = Odd()
    optimizer = adam(model, "zero")
    train(model, optimizer, batches(ME, 2))
    hvd.barrier()
    before = collectives()
    for words in batches(ME, 3 + ME):  # other numbers on each rank
        with torch.no_grad():
            model(words)
    model.state_dict()
    assert collectives() == before
    hvd.barrier()


def collectives():
    return {key: value for key, value in hvd.counters().items() if "tensors" in str(key) or "collectives" in str(key)}


def an_average_of_the_model():
    def script(kind):
        model = Odd()
        optimizer = adam(model, kind)
        averaged = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        optimizer.register_step_post_hook(lambda *_: averaged.update_parameters(model))
        train(model, optimizer, batches(ME, 6))
        return sha(averaged.parameters())

    alike(script)


def whole_matrices():
    model = Odd()
    with raises(ValueError, "partition='blocks' and Muon", "horo_elementwise = True"):
        horo.zero.DistributedOptimizer(Muon(model.parameters()), partition="blocks")
    with raises(ValueError, "partition='rows'"):
        horo.zero.DistributedOptimizer(Muon(model.parameters()), partition="rows")
    with raises(ValueError, "LBFGS"):
        horo.zero.DistributedOptimizer(torch.optim.LBFGS(model.parameters()))
    with raises(ValueError, "op=Adasum"):
        horo.zero.DistributedOptimizer(Muon(model.parameters()), op=hvd.Adasum)
    with raises(ValueError, "cross_barrier=True"):
        horo.zero.DistributedOptimizer(Muon(model.parameters()), cross_barrier=True)
    optimizer = horo.zero.DistributedOptimizer(Muon(model.parameters()))
    with raises(ValueError, "is a horo.zero.DistributedOptimizer already"):
        horo.zero.DistributedOptimizer(optimizer)
    with raises(ValueError, "is a DistributedOptimizer already"):
        hvd.DistributedOptimizer(optimizer)
    with raises(TypeError, "expected a torch.optim.Optimizer, not a model"):
        horo.zero.DistributedOptimizer(model)


def state_on_one_rank_alone():
    model = Odd()
    optimizer = adam(model, "zero")
    assert optimizer.state_dict()["state"] == {}
    train(model, optimizer, batches(ME, 2))
    if SIZE > 1:
        with raises(RuntimeError, "gather_state(root_rank)"):
            optimizer.state_dict()
    optimizer.gather_state(0)
    if ME == 0:
        assert len(optimizer.state_dict()["state"]) > 5
    elif SIZE > 1:
        with raises(RuntimeError, "gather_state(root_rank)"):
            optimizer.state_dict()
    of_one = optimizer.state_of(model.odd)
    assert of_one["exp_avg"].shape == model.odd.shape and of_one["step"].item() == 2
    assert optimizer.state_of(model.frozen) == {} and not optimizer.state


def a_schedule_goes_on():
    def script(kind):
        def made(model):
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            return wrapped(kind, optimizer, model), torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=9)

        model = Odd()
        optimizer, scheduler = made(model)
        train(model, optimizer, batches(ME, 4), scheduler=scheduler)
        if kind == "zero":
            optimizer.gather_state(None)
        saved = copy.deepcopy([each.state_dict() for each in (model, optimizer, scheduler)])
        of_state = sha_of_state(saved[1])
        model = Odd()
        optimizer, scheduler = made(model)
        for each, content in zip((model, optimizer, scheduler), saved):
            each.load_state_dict(content)
        train(model, optimizer, batches(ME, 4, seed=1), scheduler=scheduler)
        return sha_of(model), of_state

    alike(script)


def frozen_groups():
    def script(kind):
        model = Odd()
        groups = [{"params": [model.frozen]}, {"params": [p for p in model.parameters() if p is not model.frozen]}]
        optimizer = torch.optim.Adam(groups, lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        optimizer = wrapped(kind, optimizer, model)
        train(model, optimizer, batches(ME, 4), scheduler=scheduler)
        return sha_of(model), [group["lr"] for group in optimizer.param_groups]

    alike(script)


def parameters_are_unfrozen_and_added():
    def script(kind):
        model = Odd()
        optimizer = adam(model, kind)
        frozen = (model.up, model.embedding)
        for layer in frozen:
            layer.requires_grad_(False)
        train(model, optimizer, batches(ME, 3))
        if kind == "zero":
            most = 8 * (sum(p.numel() for p in model.parameters() if p.requires_grad) / SIZE + 256)
            assert divided_state_bytes(optimizer) <= most
        for layer in frozen:
            layer.requires_grad_(True)
        model.odd.requires_grad_(False)
        train(model, optimizer, batches(ME, 3, seed=1))
        added = nn.Parameter(torch.ones(700))
        model.register_parameter("added", added)
        optimizer.add_param_group({"params": [added], "lr": 0.1})
        for words in batches(ME, 3, seed=2):
            optimizer.zero_grad()
            (loss_of(model, words) + added.square().sum()).backward()
            optimizer.step()
        if kind == "zero":
            optimizer.gather_state(None)
        return sha_of(model), sha_of_state(optimizer.state_dict())

    alike(script)


passes_without_reduction()
a_norm_does_not_depend_on_the_ranks()
delays_change_no_bit()
ranks_may_use_other_parameters()
heads_take_turns_and_one_rank_branches()
forward_makes_no_collective()
an_average_of_the_model()
whole_matrices()
state_on_one_rank_alone()
a_schedule_goes_on()
frozen_groups()
parameters_are_unfrozen_and_added()
hvd.shutdown()
