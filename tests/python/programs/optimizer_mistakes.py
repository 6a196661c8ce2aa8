"""Wrong uses of DistributedOptimizer: they work, or raise an error that names the remedy; then training goes on."""

import gc
import weakref

import claims
import torch
from claims import raises

import horo.torch as hvd


def params_of(*names):
    return {name: torch.nn.Parameter(torch.zeros(2)) for name in names}


def distributed(params, named=True, **options):
    sgd = torch.optim.SGD(list(params.values()), lr=1.0)
    return hvd.DistributedOptimizer(sgd, list(params.items()) if named else None, **options)


def one_step(params, optimizer):
    """A step that subtracts one from each parameter, whatever went wrong before."""
    optimizer.zero_grad()
    before = {name: param.detach().clone() for name, param in params.items()}
    sum(param.sum() for param in params.values()).backward()
    optimizer.step()
    for name, param in params.items():
        assert (param == before[name] - 1).all(), name


def a_parameter_that_is_used_twice_is_reduced_once():
    params = params_of("shared")
    optimizer = distributed(params)
    (params["shared"] * 2 + params["shared"] * 3).sum().backward()
    optimizer.step()
    assert (params["shared"] == -5).all()


def ranks_may_have_parameters_in_different_orders():
    params = params_of("a", "b", "c")
    turned = dict(reversed(params.items())) if hvd.rank() else params
    optimizer = distributed(turned)
    for _ in range(3):
        one_step(turned, optimizer)


def a_step_without_backward_changes_nothing():
    params = params_of("idle")
    optimizer = distributed(params)
    optimizer.step()
    assert (params["idle"] == 0).all() and params["idle"].grad is None
    one_step(params, optimizer)


def a_step_without_backward_on_one_rank_counts_as_zero():
    params = params_of("half")
    optimizer = distributed(params)
    if hvd.rank() == 0:
        params["half"].sum().backward()
    optimizer.step()
    assert (params["half"] == -1 / hvd.size()).all()
    params["half"].data.zero_()
    one_step(params, optimizer)


def a_second_backward_adds_to_the_mean_and_is_refused_for_a_sum():
    params = params_of("twice")
    optimizer = distributed(params)
    for factor in (1, hvd.rank()):
        (params["twice"] * factor).sum().backward()
    assert (params["twice"].grad == 1 + (hvd.size() - 1) / 2).all()
    one_step(params, optimizer)
    params = params_of("added")
    optimizer = distributed(params, op=hvd.Sum)
    params["added"].sum().backward()
    with raises(RuntimeError, "gradient added", "no_sync()"):
        params["added"].sum().backward()
    optimizer.zero_grad()
    params["added"].sum().backward()
    assert (params["added"].grad == hvd.size()).all()
    optimizer.step()


def passes_without_sync_only_accumulate():
    params = params_of("local")
    optimizer = distributed(params, op=hvd.Sum)
    with optimizer.no_sync():
        for _ in range(3):
            (params["local"] * hvd.rank()).sum().backward()
            assert (params["local"].grad == hvd.rank() * (_ + 1)).all()
    params["local"].sum().backward()
    assert (params["local"].grad == 4 * hvd.size() - 3 * (hvd.size() - sum(range(hvd.size())))).all()
    optimizer.step()
    optimizer.zero_grad()
    with optimizer.no_sync():
        (params["local"] * hvd.rank()).sum().backward()
    optimizer.step()
    assert (params["local"].grad == sum(range(hvd.size()))).all()


def zero_grad_by_one_rank_alone_hinders_no_other():
    params = params_of("zeroed")
    optimizer = distributed(params)
    params["zeroed"].sum().backward()
    if hvd.rank() == 0:
        optimizer.zero_grad()
    optimizer.step()
    one_step(params, optimizer)


def a_rank_may_make_fewer_passes():
    """Rank 1 makes one pass where two are set: step() submits the gradient of one."""
    params = params_of("accumulated")
    optimizer = distributed(params, backward_passes_per_step=2)
    for _ in range(2 - hvd.rank()):
        params["accumulated"].sum().backward()
    optimizer.step()
    assert (params["accumulated"] == -1.5).all()


def an_invalid_predivide_factor_is_refused():
    for factor in (0.0, 0, float("nan"), float("inf"), -float("inf"), 1e-320):
        with raises(ValueError, f"gradient_predivide_factor={factor!r}"):
            distributed(params_of("divided"), gradient_predivide_factor=factor)
    for factor in (2, 0.25, -4.0):
        params = params_of(f"divided by {factor}")
        one_step(params, distributed(params, gradient_predivide_factor=factor))


def a_name_stays_with_its_parameter():
    """Names are given for a parameter that is not in the optimizer: a later parameter must not get its id."""
    param, gone = params_of("here", "gone").values()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [("here", param), ("gone", gone)])
    before = weakref.ref(gone)
    del gone
    gc.collect()
    assert before() is not None
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))]})


def a_refused_parameter_leaves_no_hook():
    params = params_of("taken")
    refused = torch.nn.Parameter(torch.zeros(2, dtype=torch.complex32))
    with raises(ValueError, "refused", "complex32"):
        distributed(params | {"refused": refused})
    for _ in range(2):
        params["taken"].sum().backward()
    one_step(params, distributed(params))


def backward_raises_the_exception_of_a_hook():
    params = params_of("hooked")
    optimizer = distributed(params)
    hook = params["hooked"].register_hook(lambda gradient: 1 / 0)
    with raises(ZeroDivisionError):
        params["hooked"].sum().backward()
    hook.remove()
    one_step(params, optimizer)


def a_parameter_that_one_rank_lacks_is_named():
    """The error arrives at once, and the session goes on."""
    mine = hvd.rank()
    params = params_of("everywhere", f"extra of {mine}")
    optimizer = distributed(params)
    with raises(hvd.Mismatch, *(f"extra of {rank} is in no optimizer of rank {1 - rank}" for rank in (0, 1))):
        sum(param.sum() for param in params.values()).backward()
    del optimizer
    params = params_of("later")
    one_step(params, distributed(params))


claims.check(
    a_parameter_that_is_used_twice_is_reduced_once,
    ranks_may_have_parameters_in_different_orders,
    a_step_without_backward_changes_nothing,
    a_step_without_backward_on_one_rank_counts_as_zero,
    a_second_backward_adds_to_the_mean_and_is_refused_for_a_sum,
    passes_without_sync_only_accumulate,
    zero_grad_by_one_rank_alone_hinders_no_other,
    a_rank_may_make_fewer_passes,
    an_invalid_predivide_factor_is_refused,
    a_name_stays_with_its_parameter,
    a_refused_parameter_leaves_no_hook,
    backward_raises_the_exception_of_a_hook,
    a_parameter_that_one_rank_lacks_is_named,
)
