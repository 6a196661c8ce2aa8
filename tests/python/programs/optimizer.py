"""DistributedOptimizer compared with one process that has the whole batch, and its behaviour as an optimizer."""

import collections

import claims
import torch
from claims import raises, same_bits

import horo.torch as hvd


def net(seed=3, dtype=torch.float64):
    torch.manual_seed(seed)
    layers = [torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 10)]
    return torch.nn.Sequential(*layers).to(dtype)


def batches(count, seed=5):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        images = torch.randn(64, 1, 8, 8, generator=generator, dtype=torch.float64)
        yield images, torch.randint(10, (64,), generator=generator)


def train(model, optimizer, part=slice(None)):
    for images, labels in batches(50):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[part]), labels[part]).backward()
        optimizer.step()


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, **options)


def distributed(model, optimizer=None, **options):
    return hvd.DistributedOptimizer(optimizer or sgd(model), named_parameters=model.named_parameters(), **options)


def several_ranks_train_like_one_process():
    alone, together = net(), net(seed=100 + hvd.rank())
    together.load_state_dict(alone.state_dict()) if hvd.rank() == 0 else None
    hvd.broadcast_parameters(together.state_dict(), root_rank=0)
    train(alone, sgd(alone))
    train(together, distributed(together), slice(hvd.rank(), None, hvd.size()))
    for a, b in zip(together.parameters(), alone.parameters()):
        assert (a - b).abs().max() <= 1e-10 * b.abs().max(), f"{(a - b).abs().max()} of {b.abs().max()}"
        assert not torch.equal(b, torch.zeros_like(b))
    for part in hvd.allgather_object([p.detach() for p in together.parameters()]):
        for a, b in zip(part, together.parameters()):
            same_bits(a, b.detach())


def no_message_carries_a_name_after_the_first_steps():
    model = net()
    optimizer = distributed(model)
    seen = []
    for images, labels in batches(20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[:8]), labels[:8]).backward()
        optimizer.step()
        seen.append(hvd.counters()["control"]["messages_with_names"])
    assert seen[5:] == [seen[5]] * 15, seen
    assert seen[-1] > 0


def the_class_is_derived_from_the_users():
    model = net()
    plain = torch.optim.AdamW(model.parameters(), lr=0.125, weight_decay=0.5)
    optimizer = distributed(model, plain)
    assert isinstance(optimizer, torch.optim.AdamW) and type(optimizer).__name__ == "AdamW"
    assert optimizer.defaults["weight_decay"] == 0.5 and optimizer.param_groups[0]["lr"] == 0.125
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    model(torch.ones(1, 1, 8, 8, dtype=torch.float64)).sum().backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.0625


def step_hooks_run_once():
    model, calls = net(), []
    optimizer = distributed(model)
    optimizer.register_step_post_hook(lambda *_: calls.append("step"))
    optimizer.load_state_dict(optimizer.state_dict())
    model(torch.ones(1, 1, 8, 8, dtype=torch.float64)).sum().backward()
    optimizer.step()
    assert calls == ["step"]


def a_scheduler_of_the_wrapped_optimizer_does_not_bypass_the_reduction():
    param = torch.nn.Parameter(torch.zeros(1))
    plain = torch.optim.SGD([param], lr=1.0)
    torch.optim.lr_scheduler.StepLR(plain, step_size=1)
    optimizer = hvd.DistributedOptimizer(plain, [("scheduled", param)])
    (param * hvd.rank()).sum().backward()
    optimizer.step()
    assert param.item() == -sum(range(hvd.size())) / hvd.size()


def several_passes_are_added_before_the_submit():
    param = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([param], lr=1.0), [("passes", param)], backward_passes_per_step=2
    )
    for _ in range(3):
        optimizer.zero_grad()
        (param * 1.0).sum().backward()
        assert (param.grad == 1).all()
        (param * hvd.rank()).sum().backward()
        assert (param.grad == 1 + (hvd.size() - 1) / 2).all()
        optimizer.step()
    assert (param == -3 * (1 + (hvd.size() - 1) / 2)).all(), param
    optimizer.set_backward_passes_per_step(1)
    optimizer.zero_grad()
    (param * hvd.rank()).sum().backward()
    assert (param.grad == (hvd.size() - 1) / 2).all()
    optimizer.step()


def step_reduces_after_too_few_passes():
    param = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([param], lr=1.0), [("too_few", param)], backward_passes_per_step=2
    )
    (param * hvd.rank()).sum().backward()
    optimizer.step()
    assert (param == -(hvd.size() - 1) / 2).all()


Unused = collections.namedtuple("Unused", "everywhere here nowhere")


def unused_parameters_are_absent_or_none():
    params = Unused(*(torch.nn.Parameter(torch.zeros(2)) for _ in range(3)))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=1.0), list(params._asdict().items()))
    for step in range(4):
        optimizer.zero_grad()
        loss = params.nowhere.sum()
        if hvd.rank() == (1 if step < 3 else 0):
            loss = loss + (params.here * 6).sum()
        loss.backward()
        optimizer.step()
        assert params.everywhere.grad is None
        assert (params.here.grad == 6 / hvd.size()).all(), params.here.grad
        assert (params.nowhere.grad == 1).all()
    assert (params.here == -4 * 6 / hvd.size()).all() and (params.everywhere == 0).all()


def gradients_may_be_zeros_instead_of_none():
    model = net()
    optimizer = distributed(model)
    for set_to_none in (True, False, True):
        optimizer.zero_grad(set_to_none=set_to_none)
        model(torch.ones(1, 1, 8, 8, dtype=torch.float64)).sum().backward()
        optimizer.zero_grad()
        assert all(p.grad is None for p in model.parameters())
        model(torch.ones(1, 1, 8, 8, dtype=torch.float64)).sum().backward()
        optimizer.step()
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def gradients_may_be_clipped_before_step():
    param = torch.nn.Parameter(torch.zeros(4))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [("clipped", param)])
    (param * (hvd.rank() + 1)).sum().backward()
    optimizer.synchronize()  # as scripts for Horovod do
    torch.nn.utils.clip_grad_norm_([param], 1.0)
    with optimizer.skip_synchronize():
        optimizer.step()
    torch.testing.assert_close(param.detach().norm(), torch.tensor(1.0))
    optimizer.zero_grad()
    (param * (hvd.rank() + 1)).sum().backward()
    torch.nn.utils.clip_grad_norm_([param], 1.0)
    optimizer.step()
    torch.testing.assert_close(param.detach().norm(), torch.tensor(2.0))


def gradients_of_a_closure_are_reduced():
    param = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [("closure", param)])

    def closure():
        optimizer.zero_grad()
        loss = (param * hvd.rank()).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 0.0
    assert (param == -(hvd.size() - 1) / 2).all()


def strided_gradients_are_reduced():
    param = torch.nn.Parameter(torch.zeros(4, 3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [("strided", param)])
    param.grad = torch.full((3, 4), float(hvd.rank())).t()
    optimizer.step()
    assert (param == -(hvd.size() - 1) / 2).all()


def predivision_changes_nothing_but_rounding():
    param = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([param], lr=1.0), [("predivided", param)], gradient_predivide_factor=2.0
    )
    (param * hvd.rank()).sum().backward()
    optimizer.step()
    assert (param == -(hvd.size() - 1) / 2).all()


def sums_and_unnamed_parameters_work():
    params = [torch.nn.Parameter(torch.zeros(2)) for _ in range(3)]
    groups = [{"params": params[:1]}, {"params": params[1:2], "lr": 2.0}]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=1.0), op=hvd.Sum, order="fast")
    optimizer.add_param_group({"params": params[2:], "lr": 3.0})
    sum(p.sum() for p in params).backward()
    optimizer.step()
    assert [p[0].item() for p in params] == [-1.0 * hvd.size(), -2.0 * hvd.size(), -3.0 * hvd.size()]


def wrong_arguments_are_refused():
    model = net()
    named = list(model.named_parameters())
    wrong = {
        "unique": lambda: hvd.DistributedOptimizer(sgd(model), [("a", p) for _, p in named]),
        "not named": lambda: hvd.DistributedOptimizer(sgd(model), named[1:]),
        "tuples": lambda: hvd.DistributedOptimizer(sgd(model), [p for _, p in named]),
        "backward_passes_per_step=0": lambda: distributed(model, backward_passes_per_step=0),
        "groups": lambda: distributed(model, groups="all"),
        "predivide": lambda: distributed(model, gradient_predivide_factor=2.0, op=hvd.Sum),
        "already": lambda: distributed(model, distributed(model)),
        "op=99": lambda: distributed(model, op=99),
    }
    for text, call in wrong.items():
        with raises(ValueError, text):
            call()


def a_collected_optimizer_leaves_no_hook():
    model = net()
    optimizer = distributed(model)
    model(torch.ones(1, 1, 8, 8, dtype=torch.float64)).sum().backward()
    del optimizer
    hvd.barrier()
    param = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [("gone", param)])
    del optimizer
    before = hvd.counters()["submitted"]
    param.sum().backward()
    assert hvd.counters()["submitted"] == before


def gradients_that_differ_from_the_declaration_are_refused():
    param = torch.nn.Parameter(torch.zeros(2))
    _optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [("changed", param)])
    param.data = torch.zeros(3, dtype=torch.float64)
    with raises(ValueError, "changed", "float64 [3]", "float32 [2]"):
        param.sum().backward()


def gradients_that_differ_between_ranks_fail_on_every_rank():
    param = torch.nn.Parameter(torch.zeros(2 + hvd.rank()))
    _optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [("differs", param)])
    with raises(hvd.Mismatch, "differs", "shape"):
        param.sum().backward()
    assert (param == 0).all()
    assert hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum).item() == hvd.size()


def training_goes_on_after_shutdown_and_init():
    model, alone = net(), net()
    optimizer = distributed(model)
    for _ in range(2):
        hvd.shutdown()
        assert not hvd.is_initialized()
        hvd.init()
        train(model, optimizer, slice(hvd.rank(), None, hvd.size()))
    train(alone, reference := sgd(alone))
    train(alone, reference)
    for a, b in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(a, b)


claims.check(
    several_ranks_train_like_one_process,
    no_message_carries_a_name_after_the_first_steps,
    the_class_is_derived_from_the_users,
    step_hooks_run_once,
    a_scheduler_of_the_wrapped_optimizer_does_not_bypass_the_reduction,
    several_passes_are_added_before_the_submit,
    step_reduces_after_too_few_passes,
    unused_parameters_are_absent_or_none,
    gradients_may_be_zeros_instead_of_none,
    gradients_may_be_clipped_before_step,
    gradients_of_a_closure_are_reduced,
    strided_gradients_are_reduced,
    predivision_changes_nothing_but_rounding,
    sums_and_unnamed_parameters_work,
    wrong_arguments_are_refused,
    a_collected_optimizer_leaves_no_hook,
    gradients_that_differ_from_the_declaration_are_refused,
    gradients_that_differ_between_ranks_fail_on_every_rank,
    training_goes_on_after_shutdown_and_init,
)
