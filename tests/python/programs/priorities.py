"""priority and cross_barrier: the same bits as without them; unsupported combinations are refused."""

import claims
import torch
from claims import raises, same_bits

import horo.torch as hvd

STEPS = 10


class Net(torch.nn.Module):
    """Layers in another order than used. One is used by other modules only, one is tied, one is unused."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.last = torch.nn.Linear(12, 5)
        self.attention = torch.nn.MultiheadAttention(12, 2, batch_first=True)
        self.never = torch.nn.Linear(3, 3)
        self.norm = torch.nn.BatchNorm1d(12)
        self.some = torch.nn.Linear(12, 12)
        self.first = torch.nn.Linear(7, 12)

    def forward(self, x, step):
        x = torch.tanh(self.norm(self.first(x)))
        if step % 3 == 0 or hvd.rank() == 0:
            x = torch.tanh(self.some(x))
        x, _ = self.attention(x[None], x[None], x[None])
        return self.last(x[0]) @ self.last.weight


def sgd(params):
    return torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.01)


def trained(make=sgd, passes=1, clips=False, groups=None, **options):
    """The parameters and buffers after some steps."""
    model = Net()
    plain = make(model.parameters())
    chosen = None if groups is None else [[model.first.weight, model.last.bias, model.never.weight]]
    optimizer = hvd.DistributedOptimizer(
        plain, model.named_parameters(), backward_passes_per_step=passes, groups=chosen, **options
    )
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    generator = torch.Generator().manual_seed(hvd.rank())
    for step in range(STEPS):
        optimizer.zero_grad()
        for _ in range(passes):
            model(torch.randn(8, 7, generator=generator), step).square().mean().backward()
        if clips and step % 4 == 3:
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
        scheduler.step()
    if options.get("cross_barrier"):
        optimizer.synchronize()
    return [value.detach().clone() for value in model.state_dict().values()]


def expect_same(expected, found):
    for a, b in zip(expected, found, strict=True):
        same_bits(a, b)


def priorities_change_no_bit():
    expect_same(trained(), trained(priority="forward"))
    expect_same(trained(), trained(priority="forward", gradient_as_bucket_view=True))
    expect_same(trained(groups=1), trained(groups=1, priority="forward"))


def steps_without_a_barrier_change_no_bit():
    for priority in (None, "forward"):
        expect_same(trained(), trained(cross_barrier=True, priority=priority))


def cross_barrier_supports_these_optimizers():
    kinds = (
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.RMSprop,
        torch.optim.Adagrad,
        torch.optim.Adadelta,
    )
    for kind in kinds:
        expect_same(trained(kind), trained(kind, cross_barrier=True, priority="forward"))


def updates_use_the_settings_at_step():
    def two_groups(params):
        params = list(params)
        groups = [{"params": params[:3], "lr": torch.tensor(0.01)}, {"params": params[3:]}]
        return torch.optim.Adam(groups, lr=0.1, foreach=False)

    expect_same(trained(two_groups), trained(two_groups, cross_barrier=True))


def passes_clipping_and_groups_are_supported():
    for options in ({"passes": 2}, {"clips": True}, {"groups": 1}, {"compression": hvd.Compression.fp16}):
        expect_same(trained(**options), trained(**options, cross_barrier=True, priority="forward"))


def priorities_follow_the_order_of_first_use():
    model = Net()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), priority="forward")
    for step in range(3):
        optimizer.zero_grad()
        model(torch.ones(8, 7), step).sum().backward()
        optimizer.step()
    states = optimizer._horo_gradients.declared.states
    names = [state.spec.name for state in sorted(states, key=lambda state: -state.spec.priority)]
    used = ["first", "norm", "some", "attention", "last"]
    found = list(dict.fromkeys(name.split(".")[0] for name in names))
    assert [name for name in found if name != "never"] == used, names
    assert sorted(state.spec.priority for state in states) == list(range(1 - len(states), 1))


def no_message_carries_a_name_after_the_first_steps():
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(6)))
    options = {"priority": "forward", "cross_barrier": True}
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), **options)
    seen = []
    for _ in range(14):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        seen.append(hvd.counters()["control"]["messages_with_names"])
    optimizer.synchronize()
    assert seen[8:] == [seen[8]] * 6, seen


def state_dict_makes_the_due_updates():
    states = []
    for cross in (False, True):
        model = torch.nn.Linear(4, 4)
        torch.nn.init.ones_(model.weight)
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), cross_barrier=cross)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        assert cross == bool(optimizer._horo_cross and optimizer._horo_cross.is_pending())
        states.append(optimizer.state_dict())
        assert not (cross and optimizer._horo_cross.is_pending())
        optimizer.load_state_dict(states[-1])
        model(torch.ones(2, 4))
        before = hvd.counters()["submitted"]
        optimizer.synchronize() if cross else None
        assert hvd.counters()["submitted"] == before
    momenta = [state["state"][0]["momentum_buffer"] for state in states]
    same_bits(*momenta)


def optimizers_that_cannot_update_one_parameter_are_refused():
    class Mine(torch.optim.SGD):
        pass

    params = [torch.nn.Parameter(torch.ones(2))]
    for optimizer in (torch.optim.LBFGS(params), Mine(params, lr=0.1)):
        with raises(ValueError, "may not be able to update one parameter by itself; expected one of SGD, Adam"):
            hvd.DistributedOptimizer(optimizer, cross_barrier=True)
    with raises(ValueError, "exclude each other"):
        hvd.DistributedOptimizer(sgd(params), cross_barrier=True, gradient_as_bucket_view=True)
    with raises(ValueError, "priority='backward'; expected None or 'forward'"):
        hvd.DistributedOptimizer(sgd(params), priority="backward")
    hvd.DistributedOptimizer(sgd(params))


def a_closure_and_step_hooks_are_refused():
    model = torch.nn.Linear(2, 2)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), cross_barrier=True)
    with raises(ValueError, "expected step()"):
        optimizer.step(lambda: None)
    for _ in range(2):
        model(torch.ones(2, 2)).sum().backward()
        optimizer.step()
    optimizer.synchronize()
    handle = optimizer.register_step_post_hook(lambda *_: None)
    model(torch.ones(2, 2)).sum().backward()
    with raises(ValueError, "expected no step hooks"):
        optimizer.step()
    handle.remove()
    optimizer.step()
    optimizer.synchronize()


def a_use_of_a_parameter_outside_its_module_is_an_error():
    model = torch.nn.Linear(2, 2)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), cross_barrier=True)
    for _ in range(2):
        model(torch.ones(2, 2)).sum().backward()
        optimizer.step()
    with raises(RuntimeError, "was used before its update from the last step()"):
        (model.weight.sum() + model.bias.sum()).backward()
    optimizer.synchronize()
    with raises(AssertionError, "zero_grad"):
        model(torch.ones(2, 2)).sum().backward()
        optimizer.zero_grad()
    optimizer.step()
    optimizer.synchronize()


def a_gradient_that_is_replaced_while_a_copy_of_it_is_reduced_is_named():
    model = torch.nn.Linear(2, 2)
    options = {"cross_barrier": True, "compression": hvd.Compression.fp16}
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), **options)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 2)).sum().backward()
        optimizer.step()
    optimizer.zero_grad()
    model(torch.ones(2, 2)).sum().backward()
    model.weight.grad = model.weight.grad * 0.5
    with raises(hvd.HoroError, "gradient weight was replaced", "optimizer.synchronize()"):
        optimizer.step()
    optimizer.synchronize()


def calls_have_priorities():
    tensors = [torch.full((1000,), float(i)) for i in range(9)]
    handles = [hvd.allreduce_async(t, name=f"p{i}", priority=i % 3, op=hvd.Sum) for i, t in enumerate(tensors)]
    for i, handle in enumerate(handles):
        same_bits(hvd.synchronize(handle), tensors[i] * hvd.size())
    handles = [hvd.allreduce_async_(t, name=f"p{i}", priority=-i) for i, t in enumerate(tensors)]
    handles.append(hvd.grouped_allreduce_async(tensors, priority=7))
    for handle in handles:
        hvd.synchronize(handle)
    for bad in (1.5, "high", 1 << 31):
        with raises(ValueError, "expected an integer of 32 bits"):
            hvd.allreduce_async(tensors[0], name="bad", priority=bad)


def different_priorities_on_ranks_are_an_error():
    with raises(hvd.Mismatch, "priority 0 on rank 0; priority 1 on rank"):
        hvd.synchronize(hvd.allreduce_async(torch.ones(2), name="disagree", priority=min(hvd.rank(), 1)))


claims.check(
    priorities_change_no_bit,
    steps_without_a_barrier_change_no_bit,
    cross_barrier_supports_these_optimizers,
    updates_use_the_settings_at_step,
    passes_clipping_and_groups_are_supported,
    priorities_follow_the_order_of_first_use,
    no_message_carries_a_name_after_the_first_steps,
    state_dict_makes_the_due_updates,
    optimizers_that_cannot_update_one_parameter_are_refused,
    a_closure_and_step_hooks_are_refused,
    a_use_of_a_parameter_outside_its_module_is_an_error,
    a_gradient_that_is_replaced_while_a_copy_of_it_is_reduced_is_named,
    calls_have_priorities,
    different_priorities_on_ranks_are_an_error,
)
