"""DistributedOptimizer with op=Adasum, against a simulation of all ranks in one process in float64."""

import copy
import functools
import pickle
import warnings

import claims
import torch
from adasum_numpy import recursion
from claims import raises

import horo.torch as hvd

STEPS = 4


def net():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()


def loss_of(model, rank, step, passes=1):
    total = 0
    for turn in range(passes):
        torch.manual_seed(100 * rank + 10 * step + turn)
        total = total + model(torch.randn(8, 6, dtype=torch.float64)).square().mean()
    return total


def simulated(make, ranks, passes=1):
    """The parameters after the steps: each rank has a model and an optimizer of its own."""
    models = [net() for _ in ranks]
    optimizers = [make(model.parameters()) for model in models]
    for step in range(STEPS):
        starts = [param.detach().clone() for param in models[0].parameters()]
        for rank, model, optimizer in zip(ranks, models, optimizers):
            optimizer.zero_grad()
            loss_of(model, rank, step, passes).backward()
            optimizer.step()
        with torch.no_grad():
            for start, *params in zip(starts, *(model.parameters() for model in models)):
                change = torch.from_numpy(recursion([(param - start).numpy() for param in params]))
                for param in params:
                    param.copy_(start + change)
    return list(models[0].parameters())


def trained(make, passes=1, **options):
    model = net()
    optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), op=hvd.Adasum, **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        if passes > 1:
            for turn in range(passes):
                torch.manual_seed(100 * hvd.rank() + 10 * step + turn)
                model(torch.randn(8, 6, dtype=torch.float64)).square().mean().backward()
        else:
            loss_of(model, hvd.rank(), step).backward()
        optimizer.step()
    return list(model.parameters())


def close(found, exact, tolerance=1e-10):
    for one, other in zip(found, exact, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=tolerance), (one - other).abs().max()


def same_on_all_ranks(tensors):
    for tensor in tensors:
        everyone = hvd.allgather(tensor.detach().reshape(1, -1))
        assert all(torch.equal(everyone[0], row) for row in everyone)


def optimizers_with_state_train_as_simulated():
    everyone = range(hvd.size())
    for make in (
        functools.partial(torch.optim.SGD, lr=0.3, momentum=0.9, weight_decay=0.01),
        functools.partial(torch.optim.Adam, lr=0.05),
    ):
        found = trained(make)
        same_on_all_ranks(found)
        close(found, simulated(make, everyone))


def several_passes_are_one_change():
    make = functools.partial(torch.optim.SGD, lr=0.3)
    close(trained(make, 2, backward_passes_per_step=2), simulated(make, range(hvd.size()), 2))


def a_process_set_trains_alone():
    make = functools.partial(torch.optim.SGD, lr=0.3, momentum=0.5)
    part = hvd.add_process_set([0, 2])
    found = trained(make, process_set=part)
    close(found, simulated(make, [0, 2] if part.included() else [1]))
    hvd.remove_process_set(part)


def changes_may_travel_as_float16():
    make = functools.partial(torch.optim.SGD, lr=0.3)
    found = trained(make, compression=hvd.Compression.fp16)
    same_on_all_ranks(found)
    close(found, simulated(make, range(hvd.size())), 2e-3)


def allreduce_converts_where_codecs_do_not_apply():
    ranks = range(hvd.size())
    values = [torch.linspace(-1, 2, 7) * (rank + 1) + 0.1 * rank for rank in ranks]
    mine = values[hvd.rank()].clone().requires_grad_()
    halves = [value.half().double().numpy() for value in values]
    exact = torch.from_numpy(recursion(halves))
    found = hvd.allreduce(mine, op=hvd.Adasum, compression=hvd.Compression.fp16, name="adasum16")
    assert found.dtype == torch.float32 and torch.allclose(found.double(), exact, atol=4e-3)
    assert torch.equal(found, found.half().float())  # a float16 value
    with raises(NotImplementedError, "op=Adasum", "not defined"):
        found.sum().backward()
    fp16, bf16 = hvd.Compression.fp16, hvd.Compression.bf16
    least = hvd.grouped_allreduce([values[hvd.rank()], torch.tensor([3])], op=hvd.Min, compression=bf16, name="least")
    assert torch.equal(least[0], torch.stack([value.bfloat16().float() for value in values]).amin(0))
    assert least[1].tolist() == [3] and hvd.allreduce(torch.ones(2), compression=fp16, name="sum").tolist() == [1, 1]
    with raises(ValueError, "codec 'int8' is for the sum or average"):
        hvd.allreduce(values[hvd.rank()], op=hvd.Adasum, compression=hvd.Compression.int8, name="adasum8")


def metrics_are_averaged_and_learning_rates_warm_up():
    rank, size = hvd.rank(), hvd.size()
    assert hvd.metric_average(rank, "rank") == hvd.metric_average(torch.tensor(float(rank))) == (size - 1) / 2
    seen = {"loss": float("nan") if rank == 0 else 2.0 * rank, "accuracy": 0.5}
    weights = sum(range(size))
    found = hvd.metric_average(seen, weight=rank)  # rank 0 has seen no example
    assert found == {"loss": sum(2.0 * one * one for one in range(size)) / weights, "accuracy": 0.5}
    with raises(ZeroDivisionError):
        hvd.metric_average(1.0, weight=0)
    assert (hvd.lr_scale(), hvd.lr_scale(hvd.Adasum, 2), hvd.lr_scale(hvd.Sum, 2)) == (size, 2, 2 * size)
    optimizer = torch.optim.SGD(net().parameters(), lr=0.1 * hvd.lr_scale())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, hvd.Warmup(2, 2))
    rates = []
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    expected = [0.1 * (1 + min(batch, 4) / 4 * (size - 1)) for batch in range(6)]
    assert all(abs(one - other) < 1e-12 for one, other in zip(rates, expected)), rates
    for wrong in ((-1, 1), (1, 0), (1, 1, 0)):
        with raises(ValueError, "Warmup"):
            hvd.Warmup(*wrong)


def a_parameter_without_gradient_on_one_rank_moves_too():
    used, frozen = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.ones(2), requires_grad=False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([used, frozen], lr=1.0), op=hvd.Adasum)
    if hvd.rank() == 1:
        used.sum().backward()
    optimizer.step()
    assert torch.equal(used.detach(), torch.full((2,), -1.0)) and torch.equal(frozen.detach(), torch.ones(2))


def a_parameter_that_is_frozen_with_a_gradient_stays():
    weight, late = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight, late], lr=1.0), op=hvd.Adasum)
    ((hvd.rank() + 1) * (weight + late)).sum().backward()
    optimizer.step()
    before = late.detach().clone()
    late.requires_grad_(False)
    optimizer.step()
    assert torch.equal(late.detach(), before) and not torch.equal(weight.detach(), before)
    same_on_all_ranks([weight, late])


def a_scaler_may_find_an_infinity_on_one_rank():
    for option in ({}, {"fused": True}):
        weight, scaler = torch.nn.Parameter(torch.zeros(3)), torch.amp.GradScaler("cpu", init_scale=8.0)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0, **option), op=hvd.Adasum)
        for step in range(3):
            optimizer.zero_grad()
            scaler.scale(weight.sum() * (torch.inf if (step, hvd.rank()) == (1, 1) else 1.0)).backward()
            if step == 2:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            assert torch.equal(weight.detach(), torch.full((3,), -1.0 - step)), (option, step, weight)
        assert scaler.get_scale() == (4.0 if hvd.rank() == 1 else 8.0)


def hooks_after_a_step_see_what_all_ranks_have():
    weight, seen = torch.nn.Parameter(torch.zeros(1)), []
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), op=hvd.Adasum)
    handle = optimizer.register_step_post_hook(lambda one, args, _: seen.append((one is args[0], weight.item())))
    for _ in range(2):
        weight.grad = torch.ones(1) * (1 + hvd.rank())
        optimizer.step()
        assert seen.pop() == (True, weight.item()) and not seen
    handle.remove()
    optimizer.step()
    assert not seen
    same_on_all_ranks([weight])


def schedulers_and_closures_work():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Adasum)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, hvd.rank(), 0)
        loss.backward()
        return loss

    assert optimizer.step(closure).item() > 0 and isinstance(optimizer, torch.optim.SGD)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    same_on_all_ranks(list(model.parameters()))


def replicas_that_differ_are_found():
    for other in (0.0, 1.0):
        weight = torch.nn.Parameter(torch.full((3,), other if hvd.rank() == 2 else 0.0))
        optimizer = hvd.DistributedOptimizer(torch.optim.Adam([weight]), [("audited", weight)], op=hvd.Adasum)
        weight.grad = torch.arange(3.0) * (1 + hvd.rank())  # each rank has its own moments
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            optimizer.step()
        if other:
            assert not found or "parameter audited is not equal" in str(found[0].message)
            with raises(hvd.ReplicasDiffer, "parameter audited is not equal", "rank 2"):
                hvd.audit()
        else:
            assert not found
            hvd.audit()


def a_failed_step_moves_no_parameter():
    weight, large = torch.nn.Parameter(torch.zeros(2 + hvd.rank())), torch.nn.Parameter(torch.zeros(100_000))
    named = [("w", weight), ("large", large)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight, large], lr=1.0), named, op=hvd.Adasum)
    (weight.sum() + large.sum()).backward()
    for _ in range(3):  # a step may follow at once
        with raises(hvd.Mismatch, "adasum.w", "shape"):
            optimizer.step()
        assert not weight.detach().any() and not large.detach().any()


def wrong_options_are_refused_by_name():
    model = net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for option in ("gradient_as_bucket_view", "cross_barrier"):
        with raises(ValueError, f"{option}=True with op=Adasum"):
            hvd.DistributedOptimizer(sgd, op=hvd.Adasum, **{option: True})
    with raises(ValueError, "Compression.int8", "op=Adasum"):
        hvd.DistributedOptimizer(sgd, op=hvd.Adasum, compression=hvd.Compression.int8)
    with raises(ValueError, "predivide"):
        hvd.DistributedOptimizer(sgd, op=hvd.Adasum, gradient_predivide_factor=2.0)
    assert type(sgd) is torch.optim.SGD
    optimizer = hvd.DistributedOptimizer(sgd, op=hvd.Adasum)
    with raises(AssertionError, "skip_synchronize"):
        optimizer.skip_synchronize()
    with raises(ValueError, "already"):
        hvd.DistributedOptimizer(optimizer)
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with raises(TypeError, "state_dict"):
            copied(optimizer)


if __name__ == "__main__":
    claims.check(
        optimizers_with_state_train_as_simulated,
        several_passes_are_one_change,
        a_process_set_trains_alone,
        changes_may_travel_as_float16,
        allreduce_converts_where_codecs_do_not_apply,
        metrics_are_averaged_and_learning_rates_warm_up,
        a_parameter_without_gradient_on_one_rank_moves_too,
        a_parameter_that_is_frozen_with_a_gradient_stays,
        a_scaler_may_find_an_infinity_on_one_rank,
        hooks_after_a_step_see_what_all_ranks_have,
        schedulers_and_closures_work,
        replicas_that_differ_are_found,
        a_failed_step_moves_no_parameter,
        wrong_options_are_refused_by_name,
    )
