"""Ranks that reduce different parameters: the first backward fails at once, by the names, with the same text on all
ranks, and the session goes on. Run without a limit for deadlocks: what is not told at once, hangs."""

import gc
import time

import claims
import torch
from torch import nn

import horo.torch as hvd
from horo.torch import disagreement

ODD = 1  # the rank that differs


def net(*extra):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2), *extra)


def wrapped(named, **options):
    named = list(named)
    return hvd.DistributedOptimizer(torch.optim.SGD([param for _, param in named], lr=0.1), named, **options)


def trained(model):
    return [(name, param) for name, param in model.named_parameters() if param.requires_grad]


def step(model, optimizer, rows=3):
    optimizer.zero_grad()
    model(torch.ones(rows, 4)).square().mean().backward()
    optimizer.step()


def is_odd():
    return hvd.rank() == ODD


def told(run, *parts):
    """run() fails on all ranks with the same text, which has these parts; then a new optimizer trains."""
    try:
        run()
        text = None
    except hvd.Mismatch as error:
        text = str(error)
    run = None
    gc.collect()
    texts = hvd.allgather_object(text)
    assert texts[0] is not None and texts.count(texts[0]) == len(texts), texts
    assert all(part in text for part in parts), text
    model = net()
    optimizer = wrapped(model.named_parameters())
    for _ in range(2):
        step(model, optimizer)
    hvd.audit()


FROZEN = "parameter 0.weight is frozen (requires_grad=False) on rank 1, and trained on ranks 0, 2"
MISSING = "is in no optimizer of rank 1, and trained on ranks 0, 2"


def frozen_on_one_rank(steps, **options):
    """After this number of steps."""
    model = net()
    if steps == 0 and is_odd():
        model[0].weight.requires_grad_(False)
    optimizer = wrapped(model.named_parameters(), **options)
    for _ in range(steps):
        step(model, optimizer)
    if is_odd():
        model[0].weight.requires_grad_(False)
    step(model, optimizer)


def a_layer_that_one_rank_has_frozen_is_named():
    for steps in (0, 1, 5):
        told(lambda: frozen_on_one_rank(steps), FROZEN)
    for options in ({"gradient_as_bucket_view": True}, {"groups": 2}, {"backward_passes_per_step": 1, "op": hvd.Sum}):
        told(lambda: frozen_on_one_rank(5, **options), FROZEN)


def all_but_one():
    model = net()
    optimizer = wrapped(model.named_parameters())
    for _ in range(4):
        step(model, optimizer)
    if is_odd():
        model.requires_grad_(False)
        model[2].bias.requires_grad_(True)
    step(model, optimizer)


def many_frozen_parameters_are_listed():
    told(
        all_but_one,
        "parameters 0.weight, 0.bias, 1.weight, 1.bias, 2.weight are frozen (requires_grad=False) on rank 1",
    )


def unfrozen_on_one_rank():
    model = net()
    model[0].requires_grad_(False)
    optimizer = wrapped(model.named_parameters())
    for _ in range(4):
        step(model, optimizer)
    if is_odd():
        model[0].weight.requires_grad_(True)
    step(model, optimizer)


def a_layer_that_one_rank_has_unfrozen_is_named():
    told(unfrozen_on_one_rank, "0.weight is frozen (requires_grad=False) on ranks 0, 2, and trained on rank 1")


def left_out(number):
    model = net()
    if is_odd():
        model[number].weight.requires_grad_(False)
    step(model, wrapped(trained(model)))


def a_parameter_that_one_rank_has_left_out_is_named():
    for number in (0, 2):
        told(lambda: left_out(number), f"parameter {number}.weight {MISSING}")


def another_model():
    model = net() if is_odd() else net(nn.Sequential(nn.Linear(2, 2)))
    step(model, wrapped(model.named_parameters()))


def another_model_is_told_by_what_differs():
    told(another_model, f"parameters 3.0.weight, 3.0.bias are {MISSING.removeprefix('is ')}")


def one_of_two_optimizers():
    a, b = net(), net()
    if is_odd():
        b[0].weight.requires_grad_(False)
    optimizers = [
        wrapped((f"{name}.{key}", param) for key, param in trained(one)) for name, one in (("a", a), ("b", b))
    ]
    (a(torch.ones(3, 4)).square().mean() + b(torch.ones(3, 4)).square().mean()).backward()
    for optimizer in optimizers:
        optimizer.step()


def the_optimizer_of_several_that_differs_is_told():
    told(one_of_two_optimizers, f"parameter b.0.weight {MISSING}")


def an_added_group():
    model = net()
    optimizer = wrapped(model.named_parameters())
    for _ in range(3):
        step(model, optimizer)
    if is_odd():
        scale = nn.Parameter(torch.ones(4))
        optimizer.add_param_group({"params": [scale]})
        model(torch.ones(3, 4) * scale).square().mean().backward()
    else:
        model(torch.ones(3, 4)).square().mean().backward()


def a_group_that_one_rank_has_added_is_told():
    told(an_added_group, "parameter group.1.parameter.0 is in no optimizer of ranks 0, 2, and trained on rank 1")


def a_sparse_layer():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(5, 4, sparse=True), net())
    optimizer = wrapped(model.named_parameters())
    for turn in range(4):
        if turn == 3 and is_odd():
            model[0].weight.requires_grad_(False)
        optimizer.zero_grad()
        model(torch.tensor([1, 2])).square().mean().backward()
        optimizer.step()


def a_sparse_layer_that_one_rank_has_frozen_is_named():
    told(a_sparse_layer, FROZEN)


def in_a_process_set():
    model = net()
    optimizer = wrapped(model.named_parameters(), process_set=PAIR)
    for turn in range(3):
        if turn == 2 and is_odd():
            model[0].weight.requires_grad_(False)
        step(model, optimizer)


def a_process_set_tells_its_members_alone():
    global PAIR
    PAIR = hvd.add_process_set([1, 2])
    if hvd.rank() == 0:
        in_a_process_set()
    else:
        with claims.raises(hvd.Mismatch, "0.weight is frozen (requires_grad=False) on rank 1, and trained on rank 2"):
            in_a_process_set()
    hvd.remove_process_set(PAIR)


def freezing_on_all_ranks_is_no_disagreement():
    model = net()
    optimizer = wrapped(model.named_parameters())
    for turn in range(8):
        model[turn % 3].requires_grad_(turn % 2 == 0)
        step(model, optimizer, rows=3 + hvd.rank())
    hvd.audit()


def held_in_backward():
    """Rank 1 has frozen a layer, and rank 2 has submitted its first gradient when rank 0 raises the error. This
    is the first round of the session: each gradient travels on its own, and no other optimizer may have a round."""
    model = net()
    if is_odd():
        model[0].weight.requires_grad_(False)
    optimizer = wrapped(model.named_parameters(), priority="forward")
    hidden = model[0](torch.ones(3, 4))
    if hvd.rank() == 2:
        hidden.register_hook(lambda _: hvd.recv(torch.zeros(1), 0, "has raised") and None)
    model[2](model[1](hidden)).square().mean().backward()
    optimizer.step()


def a_late_rank_counts_its_streams_as_the_others_do():
    """Those others have given up waiting for its names."""
    before, disagreement.WAIT_S = disagreement.WAIT_S, 0.1
    try:
        with claims.raises(hvd.Mismatch):
            held_in_backward()
        if hvd.rank() == 0:
            hvd.send(torch.ones(1), 2, "has raised")
    finally:
        disagreement.WAIT_S = before
    gc.collect()
    hvd.barrier()  # the late rank has submitted its part of the layouts, which the next optimizer submits anew
    told(lambda: frozen_on_one_rank(2), FROZEN)


class Raising(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if is_odd():
            raise ValueError("other tensors in round 1, layouts of x and rounds of optimizers")
        return gradient


def the_text_of_an_exception_of_another_rank_is_no_sign():
    model = net()
    optimizer = wrapped(model.named_parameters())
    for _ in range(3):
        step(model, optimizer)
    begun = time.monotonic()
    with claims.raises(ValueError if is_odd() else hvd.Mismatch, "other tensors in round 1"):
        model[2](model[1](Raising.apply(model[0](torch.ones(3, 4))))).square().mean().backward()
    assert time.monotonic() - begun < disagreement.WAIT_S, "the ranks have waited for names"
    for _ in range(2):
        step(model, optimizer)
    hvd.audit()


DIFFERENT = "are in no optimizer of rank 2, and trained on rank 1"


def with_optimizers_of_a_set(steps):
    """A backward that reaches an optimizer of the world first, and then those of a set whose members have other ones.
    steps: of the former, before."""
    pair = hvd.add_process_set([1, 2])
    world, models = net(), [net() for _ in range(3 if is_odd() else 2)] if hvd.rank() > 0 else []
    outer = wrapped(world.named_parameters())
    for _ in range(steps):
        step(world, outer)
    inner = [
        wrapped(((f"{number}.{name}", param) for name, param in model.named_parameters()), process_set=pair)
        for number, model in enumerate(models)
    ]
    try:
        sum(model(torch.ones(3, 4)).square().mean() for model in [world, *models]).backward()
        text = ""
    except hvd.Mismatch as error:
        text = str(error)
    del inner
    hvd.remove_process_set(pair)
    return text, world, outer


def optimizers_of_a_set_that_differ_are_no_matter_of_the_world():
    text, model, optimizer = with_optimizers_of_a_set(1)
    assert (DIFFERENT in text) == (hvd.rank() > 0), text
    optimizer.step()
    for _ in range(2):
        step(model, optimizer)
    hvd.audit()


def a_first_round_of_the_world_beside_such_optimizers_hangs_on_no_rank():
    """The layouts of its gradients are not known, so the members of the set give its round up with those of the set:
    alone, as rank 0 has no such error."""
    text, model, optimizer = with_optimizers_of_a_set(0)
    assert (DIFFERENT in text) == (hvd.rank() > 0), text
    for _ in range(2):
        step(model, optimizer)
    hvd.audit()


hvd.init(settings={"HORO_DEADLOCK_MS": 0})
claims.check(
    a_late_rank_counts_its_streams_as_the_others_do,
    a_layer_that_one_rank_has_frozen_is_named,
    many_frozen_parameters_are_listed,
    a_layer_that_one_rank_has_unfrozen_is_named,
    a_parameter_that_one_rank_has_left_out_is_named,
    another_model_is_told_by_what_differs,
    the_optimizer_of_several_that_differs_is_told,
    a_group_that_one_rank_has_added_is_told,
    a_sparse_layer_that_one_rank_has_frozen_is_named,
    a_process_set_tells_its_members_alone,
    freezing_on_all_ranks_is_no_disagreement,
    the_text_of_an_exception_of_another_rank_is_no_sign,
    optimizers_of_a_set_that_differ_are_no_matter_of_the_world,
    a_first_round_of_the_world_beside_such_optimizers_hangs_on_no_rank,
    init=False,
)
