"""gradient_as_bucket_view: the same bits as without it, no copies, and gradients that behave as ordinary tensors."""

import hashlib
import io
import os

import claims
import torch
from claims import raises

import horo.torch as hvd

STEPS = 14
KNOWN = 6  # steps, after which the plans are known


class Net(torch.nn.Module):
    """Some layers are not used in every step, and some on one rank only."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.first = torch.nn.Linear(20, 30)
        self.conv = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.some = torch.nn.Linear(30, 30)
        self.mine = torch.nn.Linear(30, 30)
        self.never = torch.nn.Linear(30, 30)
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.nothing = torch.nn.Parameter(torch.ones(0, 3))
        self.last = torch.nn.Linear(30, 5)

    def forward(self, x, step):
        x = torch.tanh(self.first(x))
        if step % 5 != 4:
            x = torch.tanh(self.some(x))
        if (step + hvd.rank()) % 4 != 3:
            x = torch.tanh(self.mine(x))
        images = x[:, :27].reshape(-1, 3, 3, 3).to(memory_format=torch.channels_last)
        return self.last(x) * self.scale + self.conv(images).sum() + self.nothing.sum()


def digest(tensors):
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.detach().contiguous().numpy().tobytes())
    return sha.hexdigest()


def trained(zero_grad, passes=1, **options):
    """The digest of the parameters after some steps."""
    model = Net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    optimizer = hvd.DistributedOptimizer(sgd, backward_passes_per_step=passes, **options)
    generator = torch.Generator().manual_seed(hvd.rank())
    for step in range(STEPS):
        zero_grad(optimizer)
        for _ in range(passes):
            model(torch.randn(8, 20, generator=generator), step).square().mean().backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        with optimizer.skip_synchronize():
            optimizer.step()
    return digest(model.parameters())


def parameters_are_the_same_with_and_without():
    ways = {
        "by itself": lambda optimizer: optimizer.zero_grad(),
        "None": lambda optimizer: optimizer.zero_grad(set_to_none=True),
        "zeros": lambda optimizer: optimizer.zero_grad(set_to_none=False),
    }
    several = [{}, {"passes": 2}, {"groups": 2}, {"compression": hvd.Compression.fp16}, {"op": hvd.Sum}]
    for way, zero_grad in ways.items():
        for options in several if way == "by itself" else several[:1]:
            plain = trained(zero_grad, **options)
            assert trained(zero_grad, gradient_as_bucket_view=True, **options) == plain, (way, options)
            assert hvd.allgather_object(plain) == [plain] * hvd.size()


def params_of(name, count=5, elements=1000):
    return {f"{name} {i}": torch.nn.Parameter(torch.zeros(elements + i)) for i in range(count)}


def with_views(params, **options):
    """An optimizer with gradients that are views of their buckets."""
    options = {"gradient_as_bucket_view": True, **options}
    sgd = torch.optim.SGD(list(params.values()), lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, list(params.items()), **options)
    for _ in range(KNOWN):
        step(params, optimizer)
    return optimizer


def step(params, optimizer, factor=1.0):
    optimizer.zero_grad()
    sum((param * factor).sum() for param in params.values()).backward()
    optimizer.step()


def copied():
    counters = hvd.counters()
    return counters["packed_bytes"], counters["unpacked_bytes"]


def a_known_plan_copies_nothing():
    params = params_of("copied")
    optimizer = with_views(params)
    for zero_grad in (optimizer.zero_grad, lambda: optimizer.zero_grad(set_to_none=True)):
        before = copied()
        for _ in range(3):
            zero_grad()
            sum((param * hvd.rank()).sum() for param in params.values()).backward()
            optimizer.step()
            assert all((param.grad == (hvd.size() - 1) / 2).all() for param in params.values())
        assert copied() == before
    ordinary = params_of("ordinary")
    optimizer = with_views(ordinary, gradient_as_bucket_view=False)
    before = copied()
    step(ordinary, optimizer)
    assert copied() > before


def zero_grad_keeps_the_views_and_absent_gradients_become_none():
    params = params_of("zeroed")
    optimizer = with_views(params)
    places = [param.grad.data_ptr() for param in params.values()]
    optimizer.zero_grad()
    assert [param.grad.data_ptr() for param in params.values()] == places
    assert not any(param.grad.any() for param in params.values())
    first, second, *others = params.values()
    if hvd.rank() == 0:
        second.grad.add_(6.0)  # by hand
    first.sum().backward()
    optimizer.step()
    assert (first.grad == 1).all() and (second.grad == 6 / hvd.size()).all()
    assert all(param.grad is None for param in others)
    step(params, optimizer)
    assert [param.grad.data_ptr() for param in params.values()] == places


def zero_grad_sets_other_gradients_to_none():
    params = params_of("beside")
    optimizer = with_views(params)
    beside = torch.nn.Parameter(torch.ones(3))
    beside.grad = torch.ones(3)
    optimizer.param_groups[0]["params"].append(beside)
    optimizer.zero_grad()
    assert beside.grad is None and all(param.grad is not None for param in params.values())


class _Counting(torch.optim.SGD):
    zeroed = 0

    def zero_grad(self, set_to_none=True):
        self.zeroed += 1
        super().zero_grad(set_to_none)


def zero_grad_of_the_users_class_is_called():
    params = params_of("own")
    optimizer = hvd.DistributedOptimizer(
        _Counting(list(params.values()), lr=1.0), list(params.items()), gradient_as_bucket_view=True
    )
    for times in range(1, KNOWN + 1):
        step(params, optimizer)
        assert optimizer.zeroed == times


def a_gradient_keeps_its_values_when_it_moves():
    params = params_of("moved")
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(list(params.values()), lr=1.0), list(params.items()), gradient_as_bucket_view=True
    )
    for i in range(KNOWN):
        step(params, optimizer, float(i + hvd.rank()))
        assert all((param.grad == i + (hvd.size() - 1) / 2).all() for param in params.values())


def a_gradient_with_replaced_memory_is_named():
    params = params_of("replaced")
    optimizer = with_views(params)
    optimizer.zero_grad()
    first = next(iter(params.values()))

    def replaced(param):
        param.grad.data = param.grad.data.clone()

    hook = first.register_post_accumulate_grad_hook(replaced)
    with raises(hvd.HoroError, "gradient replaced 0", "resized or replaced"):
        sum(param.sum() for param in params.values()).backward()
    hook.remove()
    for _ in range(KNOWN):
        step(params, optimizer)
        assert all((param.grad == 1).all() for param in params.values())
    before = copied()
    step(params, optimizer)
    assert copied() == before, "the gradients are views again"


def saving_a_gradient_does_not_save_its_bucket():
    params = params_of("saved")
    with_views(params)
    file = io.BytesIO()
    torch.save(next(iter(params.values())).grad, file)
    assert len(file.getvalue()) < 2 * 4000


def gradients_are_none_in_a_forked_child():
    params = params_of("forked")
    optimizer = with_views(params)
    child = os.fork()
    if child == 0:
        os._exit(0 if all(param.grad is None for param in params.values()) else 1)
    assert os.waitpid(child, 0)[1] == 0
    step(params, optimizer)
    assert all((param.grad == 1).all() for param in params.values())


def two_optimizers_may_share_one_backward():
    params, others = params_of("one"), params_of("other")
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD(list(p.values())), list(p.items()), gradient_as_bucket_view=True)
        for p in (params, others)
    ]
    for i in range(KNOWN):
        for optimizer in optimizers:
            optimizer.zero_grad()
        sum((param * float(i + hvd.rank())).sum() for param in [*params.values(), *others.values()]).backward()
        for optimizer in optimizers:
            optimizer.step()
        for param in [*params.values(), *others.values()]:
            assert (param.grad == i + (hvd.size() - 1) / 2).all()


def gradients_of_a_process_set_are_views_too():
    some = hvd.add_process_set(range(hvd.size() - 1))
    params = params_of("of a set")
    optimizer = with_views(params, process_set=some)
    hvd.barrier()
    before = copied()
    step(params, optimizer)
    assert not some.included() or copied() == before
    hvd.barrier()
    hvd.remove_process_set(some)


def a_view_outlives_the_session():
    params = params_of("outlives", elements=1 << 20)
    optimizer = with_views(params)
    hvd.shutdown()
    views = [param.grad for param in params.values()]
    assert all((view == 1).all() for view in views)
    hvd.init()
    for _ in range(KNOWN):
        step(params, optimizer, 2.0)
    before = copied()
    step(params, optimizer, 2.0)
    assert copied() == before and all((param.grad == 2).all() for param in params.values())
    del params, optimizer
    for view in views:
        view.fill_(3.0)
    step(others := params_of("others"), with_views(others))
    assert all((view == 3).all() for view in views)


claims.check(
    parameters_are_the_same_with_and_without,
    a_known_plan_copies_nothing,
    zero_grad_keeps_the_views_and_absent_gradients_become_none,
    zero_grad_sets_other_gradients_to_none,
    zero_grad_of_the_users_class_is_called,
    a_gradient_keeps_its_values_when_it_moves,
    a_gradient_with_replaced_memory_is_named,
    saving_a_gradient_does_not_save_its_bucket,
    gradients_are_none_in_a_forked_child,
    two_optimizers_may_share_one_backward,
    gradients_of_a_process_set_are_views_too,
    a_view_outlives_the_session,
)
