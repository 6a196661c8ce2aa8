"""Mistakes with DistributedOptimizer, and features that this version does not have."""

import torch
from table import on_ranks

import horo.torch as hvd

SECTION = "DistributedOptimizer"
BY_RANK = {"changing": ((r"rank \d submitted", "rank <rank> submitted"),)}
ON_RANK = {"changing": ((r"on rank \d", "on rank <rank>"), (r"half \d", "bias"))}
LATER = "Not implemented"


def made(*names):
    """Parameters and their optimizer, after backward."""
    params = [torch.nn.Parameter(torch.zeros(2)) for _ in names]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=1.0), list(zip(names, params)))
    sum(param.sum() for param in params).backward()
    return params, optimizer


@on_ranks(
    SECTION, "`backward()` twice without a `step()`, and `op=horo.Sum`", do="`optimizer.no_sync()` around the first"
)
def two_backwards():
    param = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [("weights", param)], op=hvd.Sum)
    param.sum().backward()
    try:
        param.sum().backward()
    finally:
        optimizer.zero_grad()


@on_ranks(
    SECTION,
    "`zero_grad()` between `backward()` and `step()`, and `cross_barrier=True`",
    do="`zero_grad()` before `backward()`",
)
def zero_grad_in_between():
    model = torch.nn.Linear(2, 2)
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters(), cross_barrier=True)
    model(torch.ones(1, 2)).sum().backward()
    try:
        optimizer.zero_grad()
    finally:
        optimizer.step()


@on_ranks(
    SECTION, "A `backward()` that one rank makes more often than the others", do="Call it equally often on all ranks"
)
def one_backward_more():
    params, optimizer = made("counted")
    if hvd.rank() == 0:
        params[0].sum().backward()
    optimizer.step()
    params[0].sum().backward()


@on_ranks(
    SECTION,
    "A learning rate that is not equal on all ranks, and `horo.torch.audit()`, or any look with `HORO_AUDIT=raise`",
    do="Give all ranks the same options (see [the audit](audit.md))",
)
def replicas_that_differ():
    params, optimizer = made("audited")
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 1.0 + hvd.rank()
    try:
        hvd.audit()
    finally:
        optimizer.param_groups[0]["lr"] = 1.0


@on_ranks(SECTION, "A gradient whose memory a hook replaces", do="Change gradients after `backward()`", **BY_RANK)
def gradient_with_other_memory():
    params, _ = made("moved")
    params[0].register_post_accumulate_grad_hook(lambda param: setattr(param.grad, "data", param.grad.data.clone()))
    params[0].sum().backward()


@on_ranks(SECTION, "A gradient that a hook changes", do="Change gradients after `backward()`", **ON_RANK)
def gradient_that_is_written_to():
    params, _ = made("clipped")

    def clip(param):
        param.grad.mul_(0.5)

    params[0].register_post_accumulate_grad_hook(clip)
    params[0].sum().backward()


@on_ranks(SECTION, "A gradient that a hook removes", do="Keep it until `backward()` returns")
def gradient_thrown_away():
    params, optimizer = made("kept", "thrown")
    optimizer.step()
    params[1].register_post_accumulate_grad_hook(lambda param: setattr(param, "grad", None))
    sum(param.sum() for param in params).backward()
    optimizer.step()


@on_ranks(SECTION, "Two parameters with the same name", do="Use `model.named_parameters()`")
def two_of_one_name():
    made("twin", "twin")


@on_ranks(SECTION, "`named_parameters` that lacks some of the parameters", do="Name all of them, or none")
def some_without_a_name():
    model = torch.nn.Linear(2, 2)
    named = [("weight", model.weight)]
    try:
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), named)
    except ValueError as error:
        raise ValueError(str(error).replace(str(id(model.bias)), "<id>")) from None


@on_ranks(SECTION, "A parameter that only one rank has", do="Build the same model on all ranks")
def parameter_of_one_rank():
    made(f"extra of rank {hvd.rank()}")


@on_ranks(
    SECTION, "A layer that only one rank has frozen", do="Freeze and unfreeze it on all ranks before the same step"
)
def layer_frozen_on_one_rank():
    model = torch.nn.Linear(3, 2)
    model.weight.requires_grad_(hvd.rank() == 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


@on_ranks(SECTION, "A model in place of an optimizer", do="Wrap the model's optimizer")
def model_as_optimizer():
    hvd.DistributedOptimizer(torch.nn.Linear(3, 2))


@on_ranks(SECTION, "A lazy module that has no shapes yet", do="One forward pass on all ranks, then the optimizer")
def lazy_module():
    model = torch.nn.LazyLinear(2)
    hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())


@on_ranks(
    "Tensors",
    "A tensor that is resized in flight",
    do="Do not change its size and storage before `synchronize`",
    **BY_RANK,
)
def resized_in_flight():
    tensor = torch.ones(1000)
    handle = hvd.allreduce_async_(tensor, name="activations")
    tensor.resize_(10)
    hvd.synchronize(handle)


@on_ranks("Tensors", "An expanded tensor, in place", do="`tensor.clone()`, or the form that makes a new tensor")
def expanded_in_place():
    hvd.allreduce_(torch.ones(1).expand(4), name="bias")


@on_ranks("Tensors", "`op=Adasum` of integers", do="A floating-point type")
def adasum_of_integers():
    hvd.allreduce(torch.ones(2, dtype=torch.int64), name="counts", op=hvd.Adasum)


@on_ranks(
    "Tensors", "One tensor in place under two names at a time", do="`synchronize` the first call before", **ON_RANK
)
def in_place_under_two_names():
    tensor, mine, others = torch.ones(2), f"half {hvd.rank()}", f"half {1 - hvd.rank()}"
    handle = hvd.allreduce_async_(tensor, name=mine)  # in flight until the other rank has submitted it
    try:
        hvd.allreduce_async_(tensor, name="again")
    finally:
        hvd.barrier()
        other = hvd.allreduce_async_(torch.ones(2), name=others)
        hvd.synchronize(handle)
        hvd.synchronize(other)


@on_ranks(
    SECTION, "`broadcast_optimizer_state` with other groups on some ranks", do="The same groups of parameters on all"
)
def other_groups():
    params = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    groups = [params] if hvd.rank() else [params[:1], params[1:]]
    hvd.broadcast_optimizer_state(torch.optim.SGD([{"params": each} for each in groups], lr=1.0), 0)


@on_ranks(LATER, "`init(comm=...)` of a part of the job", do="Fewer ranks, or a process set of these")
def init_with_comm():
    hvd.init(comm=[0])


@on_ranks(SECTION, "A sparse gradient in a group", do="`sparse_as_dense=True`, or no group for it")
def sparse_gradient_in_a_group():
    table = torch.nn.Embedding(4, 2, sparse=True)
    sgd = torch.optim.SGD(table.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, [("table", table.weight)], groups=1)
    try:
        table(torch.tensor([1])).sum().backward()
    finally:
        del optimizer


@on_ranks(
    SECTION,
    "`cross_barrier=True` with a user's optimizer class",
    do="Use one of the listed classes, or no `cross_barrier`",
)
def cross_barrier_of_ones_own():
    class Mine(torch.optim.SGD):
        pass

    hvd.DistributedOptimizer(Mine([torch.nn.Parameter(torch.zeros(2))], lr=1.0), cross_barrier=True)


@on_ranks(SECTION, "`cross_barrier=True` with `gradient_as_bucket_view=True`", do="Use one of them")
def cross_barrier_with_views():
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=1.0)
    hvd.DistributedOptimizer(sgd, cross_barrier=True, gradient_as_bucket_view=True)


def crossing():
    """A model after two steps; the second one did not wait."""
    model = torch.nn.Linear(2, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters(prefix="crossing"), cross_barrier=True)
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    return model, optimizer


@on_ranks(SECTION, "`cross_barrier=True` and a closure", do="Compute the loss before `step()`")
def cross_barrier_with_a_closure():
    _, optimizer = crossing()
    optimizer.synchronize()
    optimizer.step(lambda: None)


@on_ranks(SECTION, "`cross_barrier=True` and a step hook", do="Remove the hook, or no `cross_barrier`")
def cross_barrier_with_a_step_hook():
    _, optimizer = crossing()
    optimizer.synchronize()
    optimizer.register_step_post_hook(lambda *_: None)
    optimizer.step()


@on_ranks(
    SECTION,
    "`cross_barrier=True`, and a parameter that is used without its module",
    do="Call the module that owns it, or call `optimizer.synchronize()` first",
)
def cross_barrier_without_the_module():
    model, optimizer = crossing()
    try:
        model.weight.sum().backward()
    finally:
        optimizer.synchronize()


@on_ranks(SECTION, "An unknown priority", do='`priority="forward"`, or none')
def unknown_priority():
    hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=1.0), priority="backward")
