"""The audit on three ranks: a hundred plants are found and named, and no optimizer of torch makes an alarm."""

import gc
import random

import claims
import torch
from audited import Trained, difference_of, is_between, session

import horo.torch as hvd

PLANTS = 100
OPTIMIZERS = {
    torch.optim.SGD: {"lr": 0.01, "momentum": 0.9},
    torch.optim.Adam: {"lr": 0.01},
    torch.optim.AdamW: {"lr": 0.01, "weight_decay": 0.01},
    torch.optim.RMSprop: {"lr": 0.01, "momentum": 0.5},
}


def flip(tensor, draw, bits, here):
    """Changes one bit of one element of a float32 tensor, on one rank. All ranks draw the same numbers."""
    words = tensor.detach().view(-1).view(torch.int32)
    element, bit = draw.randrange(len(words)), draw.randrange(*bits)
    if here:
        words[element] ^= 1 << bit


def flip_a_parameter(trained, draw, here):
    name = draw.choice(list(trained.names))
    flip(trained.names[name], draw, (12, 22), here)  # so much that the next update does not round it away
    return "step", f"parameter {name}"


def flip_any_bit(trained, draw, here):
    name = draw.choice(list(trained.names))
    flip(trained.names[name], draw, (0, 31), here)
    return "audit", f"parameter {name}"


def take_another_seed(trained, draw, here):
    seed = draw.randrange(1 << 20)
    if here:
        torch.manual_seed(seed)
        for layer in (trained.model[0], trained.model[2]):
            layer.reset_parameters()
    return draw.choice(["step", "audit"]), "parameter 0.weight"


def take_another_rate(trained, draw, here):
    factor = draw.uniform(1.1, 2)
    if here:
        trained.optimizer.param_groups[0]["lr"] *= factor
    return draw.choice(["step", "audit"]), "option lr of group 0"


def leave_a_gradient_unreduced(trained, draw, here):
    """The gradient of one rank is its own."""
    name = draw.choice(list(trained.names))
    trained.backward()
    trained.optimizer.synchronize()
    if here:
        trained.names[name].grad.mul_(1.5).add_(0.1)
    return "update", f"parameter {name}"


def drawn_state(trained, draw):
    name = draw.choice(list(trained.names))
    state = trained.optimizer.state[trained.names[name]]
    field = draw.choice([field for field, value in state.items() if torch.is_tensor(value) and value.dim() > 0])
    return name, state, field


def flip_a_state_entry(trained, draw, here):
    name, state, field = drawn_state(trained, draw)
    flip(state[field], draw, (0, 31), here)
    return "audit", f"state {field} of {name}"


def lose_a_state_entry(trained, draw, here):
    name, state, field = drawn_state(trained, draw)
    if here:
        del state[field]
    return "audit", f"state {field} of {name}"


KINDS = [
    flip_a_parameter,
    flip_any_bit,
    take_another_seed,
    take_another_rate,
    leave_a_gradient_unreduced,
    flip_a_state_entry,
    lose_a_state_entry,
]


def found(trained, how):
    """The error of the next look."""
    acts = {"audit": hvd.audit, "step": trained.known, "update": lambda: trained.known(trained.update)}
    return difference_of(acts[how])


def every_plant_is_found_and_named():
    with session(AUDIT="raise"):
        draw = random.Random(25)
        for number in range(PLANTS):
            kind, options = draw.choice(list(OPTIMIZERS.items()))
            trained = Trained(kind, options, number)
            steps = draw.randrange(1, 4)
            for _ in range(steps):
                trained.step()
            plant, rank = draw.choice(KINDS), draw.randrange(3)
            how, label = plant(trained, draw, hvd.rank() == rank)
            error = found(trained, how)
            about = f"{plant.__name__}: {error} {label} {rank} {steps}"
            assert (error.label, error.ranks) == (label, [rank]), about
            assert is_between(error.between, steps, steps + (how != "audit")), about
            assert label in str(error) and f"rank {rank}" in str(error), error
            del trained, error  # the error's traceback holds the optimizer, which audit() would look at


def sparse_loss(table):
    return table(torch.tensor([hvd.rank(), 4, 4])).square().sum()


def variants(kind):
    """The options with which an optimizer is tested."""
    yield {}
    if kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad):
        yield {"fused": True}
    for flag in ("foreach", "amsgrad", "maximize", "centered", "decoupled_weight_decay"):
        if flag in kind.__init__.__code__.co_varnames:
            yield {flag: True}
    if kind is torch.optim.SGD:
        yield {"momentum": 0.9, "nesterov": True}
    if kind in (torch.optim.Adam, torch.optim.AdamW):
        yield {"lr": torch.tensor(0.01)}


def train(kind, options):
    if kind is torch.optim.SparseAdam:
        torch.manual_seed(1)
        model = torch.nn.Embedding(6, 3, sparse=True)
        loss_of = lambda: sparse_loss(model)  # noqa: E731
    else:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(6, 5, bias=kind.__name__ != "Muon"), torch.nn.ReLU())
        data = torch.Generator().manual_seed(hvd.rank())
        loss_of = lambda: model(torch.randn(4, 6, generator=data)).square().mean()  # noqa: E731
    plain = kind(model.parameters(), **options)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def closure():
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        return hvd.allreduce(loss.detach(), name="loss")

    for _ in range(5):
        if kind is torch.optim.LBFGS:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        scheduler.step()


def no_optimizer_of_torch_makes_an_alarm():
    kinds = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    kinds = [kind for kind in kinds if kind is not torch.optim.Optimizer and issubclass(kind, torch.optim.Optimizer)]
    assert len(kinds) >= 13, kinds
    with session(AUDIT="raise"):
        for kind in kinds:
            for options in variants(kind):
                train(kind, options)
        hvd.audit()


gc.freeze()  # what is imported; hvd.audit() collects garbage
claims.check(every_plant_is_found_and_named, no_optimizer_of_torch_makes_an_alarm)
