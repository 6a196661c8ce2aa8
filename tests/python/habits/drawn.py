"""Random training programs: draw() makes one from a seed, as data; execute() runs it as a habit.

A program is the same on all ranks but for the data, and for the heads that each rank's losses reach.
"""

import copy
import random

import torch
from torch import nn
from torch.nn import functional

import horo.torch as hvd

OPTIMIZERS = {
    "SGD": lambda params, lr: torch.optim.SGD(params, lr=lr),
    "momentum": lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.8, nesterov=True),
    "fused SGD": lambda params, lr: torch.optim.SGD(params, lr=lr, fused=True),
    "Adam": lambda params, lr: torch.optim.Adam(params, lr=lr, eps=0.05),
    "fused AdamW": lambda params, lr: torch.optim.AdamW(params, lr=lr, eps=0.05, fused=True),
    "foreach RMSprop": lambda params, lr: torch.optim.RMSprop(params, lr=lr, eps=0.1, foreach=True),
    "Adagrad": lambda params, lr: torch.optim.Adagrad(params, lr=lr, eps=0.1),
}
ZERO = ["to None", "to zero", "model", "model to zero", "by hand", "clear", "none"]
CHANGES = ["clip", "clamp data", "replace", "drop", "scale", "numpy", "noise", "share"]
AFTER = ["freeze", "unfreeze", "rate", "load", "deepcopy", "add", "broadcast", "re-init"]


def draw(seed):
    """The program of a seed."""
    rng = random.Random(seed)
    program = {
        "seed": seed,
        "parts": sorted(part for part in ("tied", "stack", "view", "double", "large", "sparse") if rng.random() < 0.35),
        "heads": rng.randint(1, 3),
        "optimizers": [rng.choice(sorted(OPTIMIZERS)) for _ in range(rng.choice([1, 1, 2]))],
        "named": rng.random() < 0.5,
        "scaler": rng.random() < 0.25,
        "anchored": rng.random() < 0.7,
        "local": rng.random() < 0.8,
        "rate_groups": rng.random() < 0.4,
        "frozen": [name for name in ("trunk", "head0") if rng.random() < 0.15],
        "options": _options(rng),
    }
    if "stack" in program["parts"]:  # autograd gives its gradients one address, and adds to that one three times
        program["local"] = False
        program["options"].pop("backward_passes_per_step", None)
    if "sparse" in program["parts"]:
        program["scaler"] = False
        program["options"].pop("num_groups", None)
    if not program["anchored"]:
        program["options"].pop("backward_passes_per_step", None)
    if "backward_passes_per_step" in program["options"]:
        program["local"] = False
    program["iterations"] = [_iteration(rng, program) for _ in range(rng.randint(3, 7))]
    freezes = program["frozen"] or any("freeze" in one["after"] for one in program["iterations"])
    if freezes and not program["anchored"]:  # the loss of a rank may reach nothing, and step() reduces then
        for one in program["iterations"]:
            one["changes"] = []
    return program


def _options(rng):
    options = {}
    if rng.random() < 0.3:
        options["backward_passes_per_step"] = rng.randint(2, 3)
    if rng.random() < 0.4:
        options["gradient_as_bucket_view"] = True
    if rng.random() < 0.3:
        options["num_groups"] = rng.randint(1, 3)
    if rng.random() < 0.3:
        options["op"] = "Sum"
    return options


def _iteration(rng, program):
    simple = not program["anchored"]
    sums = program["options"].get("op") == "Sum"
    rounds = 1 if simple or sums else rng.choice([1, 1, 1, 2, 3])
    passes = program["options"].get("backward_passes_per_step", 1)
    one = {
        "zero": rng.choice(ZERO[:-1] if sums else ZERO),
        "fails": rng.random() < 0.12,
        "rounds": [_round(rng, program, simple) for _ in range(rounds)],
        "changes": rng.sample(CHANGES, rng.choice([0, 0, 1, 2])),
        "inf": program["scaler"] and rng.random() < 0.3,
        "steps": [True, not (len(program["optimizers"]) > 1 and rng.random() < 0.25)],
        "after": rng.sample(AFTER, rng.choice([0, 0, 1, 1, 2])),
        "refused": sums and not simple and passes == 1 and rng.random() < 0.15,
    }
    if not program["scaler"] and not simple and program["local"] and rng.random() < 0.12:
        one["unfinished"] = True  # the last passes are local: step() reduces them
        one["changes"] = []
    if any(None in part["heads"] for part in one["rounds"]):
        one["changes"] = []  # the gradients of that rank are reduced by step() only
    if one["fails"] or one["refused"]:
        one["zero"] = "to None"
    return one


def _round(rng, program, simple):
    heads = [rng.randrange(program["heads"]) for _ in range(3)]
    if simple and not program["scaler"] and rng.random() < 0.3:
        heads[rng.randrange(3)] = None  # this rank's loss reaches nothing
    return {
        "local": 0 if simple or not program["local"] or rng.random() < 0.6 else rng.randint(1, 2),
        "heads": heads,
        "embeds": [rng.random() < 0.7 for _ in range(3)],
        "retain": rng.random() < 0.1,
    }


class Model(nn.Module):
    """A trunk, heads, and parts that use their parameters in odd ways."""

    def __init__(self, job, program):
        super().__init__()
        self.parts, self.job = program["parts"], job
        self.trunk = job.net(4, 6, seed=1)
        self.heads = nn.ModuleList([job.net(6, 2, seed=2 + i) for i in range(program["heads"])])
        self.anchors = nn.ParameterList([job.parameter(2, seed=20 + i) for i in range(len(program["optimizers"]))])
        self.anchored = program["anchored"]
        if "tied" in self.parts:
            self.tied = job.parameter(6, 6, seed=30)
        if "stack" in self.parts:
            self.stack = nn.ParameterList([job.parameter(6, seed=31 + i) for i in range(3)])
        if "view" in self.parts:
            self.a, self.b = job.parameter(2, 3, seed=34), job.parameter(6, seed=35)
        if "double" in self.parts:
            self.wide = nn.Parameter(job.same(6, seed=36).double())
        if "large" in self.parts:
            self.large = nn.Parameter(job.same(6, 3000, seed=37) * 0.02)
        if "sparse" in self.parts:
            self.table = nn.Embedding(9, 6, sparse=True)
            self.table.weight.data = job.same(9, 6, seed=38)

    def forward(self, x, head, tokens):
        h = torch.tanh(self.trunk(x))
        if "tied" in self.parts:
            h = torch.tanh(functional.linear(torch.tanh(functional.linear(h, self.tied)), self.tied.t()))
        if "stack" in self.parts:
            h = h + torch.stack(list(self.stack)).sum(0)
        if "view" in self.parts:
            h = h + torch.tanh(self.b) + self.a.view(-1)
        if "double" in self.parts:
            h = h + (h.double() * self.wide).to(h.dtype)
        if "large" in self.parts:
            h = torch.tanh(h @ self.large) @ self.large.t()
        if tokens is not None:
            h = h + self.table(tokens).mean(0)
        out = self.heads[head](torch.tanh(h))
        return out + sum(self.anchors) if self.anchored else out

    def part(self, name):
        return self.trunk if name == "trunk" else self.heads[int(name[4:])]


class _Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        raise ArithmeticError("planned")


class Execution:
    """One run of a program: its objects and actions."""

    def __init__(self, job, program):
        self.job, self.program = job, program
        self.model = Model(job, program)
        for name in program["frozen"]:
            self.model.part(name).requires_grad_(False)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2, enabled=program["scaler"])
        self.noise = torch.Generator().manual_seed(5)
        self.extra = [job.parameter(2, seed=60 + i) for i in range(8)]
        self.added, self.saved, self.pass_number = 0, None, 0
        self.optimizers = self._optimizers()

    def _optimizers(self):
        program, count = self.program, len(self.program["optimizers"])
        shares = [[] for _ in range(count)]
        for i, (name, param) in enumerate(self.model.named_parameters()):
            number = int(name.split(".")[1]) if name.startswith("anchors") else i
            shares[number % count].append((name, param))
        options = dict(program["options"])
        if "op" in options:
            options["op"] = hvd.Sum
        made = []
        for kind, share in zip(program["optimizers"], shares):
            kind = "SGD" if any("table" in name for name, _ in share) else kind
            params = [param for _, param in share]
            rate = 0.01 if "op" in options else 0.03
            if program["rate_groups"] and len(params) > 1:
                params = [{"params": params[::2]}, {"params": params[1::2], "lr": rate / 2}]
            named = share + [(f"extra{i}", param) for i, param in enumerate(self.extra)]
            made.append(self.job.wrap(OPTIMIZERS[kind](params, rate), named if program["named"] else None, **options))
        return made

    def loss(self, rank, one, inf=False, fails=False):
        """The scaled loss of a rank, or a loss that reaches nothing."""
        job, head = self.job, one["heads"][rank % 3]
        number = self.pass_number
        if head is None:
            return self.scaler.scale((torch.ones(1, dtype=job.dtype, requires_grad=True) * 2).sum())
        tokens = None
        if "sparse" in self.program["parts"] and one["embeds"][rank % 3]:
            tokens = job.data(rank, number + 70, 5).abs().mul(9).long() % 9
        out = self.model(job.data(rank, number, 4, 4), head, tokens)
        for i in range(self.added):
            out = out + self.extra[i]
        loss = ((out - job.data(rank, number + 500, 4, 2)) ** 2).mean()
        if not loss.requires_grad:  # all that it reaches is frozen
            loss = loss + torch.zeros(1, dtype=job.dtype, requires_grad=True).sum()
        if inf and rank == 1:
            loss = loss * float("inf")
        return self.scaler.scale(_Fails.apply(loss) if fails else loss)

    def backward(self, one, inf=False, retain=False):
        self.pass_number += 1
        self.job.backward(lambda r: self.loss(r, one, inf), **({"retain_graph": True} if retain else {}))

    def params(self):
        """The parameters whose gradients are there and dense."""
        found = {id(p): p for optimizer in self.optimizers for group in optimizer.param_groups for p in group["params"]}
        return [p for p in found.values() if p.grad is not None and not p.grad.is_sparse]

    def zero(self, how):
        if how in ("to None", "to zero"):
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=how == "to None")
        elif how in ("model", "model to zero"):
            self.model.zero_grad(set_to_none=how == "model")
        for param in [*self.model.parameters(), *self.extra]:
            if how == "by hand" or (how.startswith("model") and param.grad is not None and param.grad.is_sparse):
                param.grad = None
            elif how == "clear" and param.grad is not None:
                param.grad = None if param.grad.is_sparse else param.grad.zero_()
        for param in self.extra if how.startswith("model") else []:
            param.grad = None

    def change(self, how):
        params = self.params()
        if not params:
            return
        if how == "clip":
            torch.nn.utils.clip_grad_norm_(params, 0.3)
        elif how == "drop":
            params[len(params) // 2].grad = None
        elif how == "share":
            params = [param for param in params if param is not getattr(self.model, "wide", None)]
            twins = [param for param in params if param.shape == params[-1].shape]
            for param in twins:
                param.grad = params[-1].grad
        elif how == "noise":
            for param in params:
                param.grad += 0.01 * torch.randn(param.shape, generator=self.noise).to(param.dtype)
        else:
            for param in params:
                self._change_one(param, how)

    def _change_one(self, param, how):
        if how == "clamp data":
            param.grad.data.clamp_(-0.1, 0.1)
        elif how == "replace":
            param.grad = torch.tanh(param.grad)
        elif how == "scale":
            param.grad *= 0.5
        elif how == "numpy":
            param.grad.numpy()[...] *= 0.75

    def after(self, how):
        optimizer = self.optimizers[-1]
        if how in ("freeze", "unfreeze"):
            part = self.program["seed"] % (1 + self.program["heads"])
            self.model.part(["trunk", "head0", "head1", "head2"][part]).requires_grad_(how == "unfreeze")
        elif how == "rate":
            for group in optimizer.param_groups:
                group["lr"] *= 0.7
        elif how == "load":
            if self.saved is not None and self.saved[1] == self.added:
                optimizer.load_state_dict(self.saved[0])
            self.saved = copy.deepcopy(optimizer.state_dict()), self.added
        elif how == "deepcopy":
            self.model.load_state_dict(copy.deepcopy(self.model).state_dict())
        elif how == "add" and self.added < len(self.extra):
            optimizer.add_param_group({"params": [self.extra[self.added]], "lr": 0.01})
            self.added += 1
        elif how == "broadcast" and not self.job.is_oracle:
            hvd.broadcast_parameters(self.model.state_dict(), root_rank=self.job.size - 1)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        elif how == "re-init" and not self.job.is_oracle:
            settings = self.job.settings
            hvd.shutdown()
            hvd.init(settings=settings)

    def rounds(self, one):
        """All backward passes of an iteration."""
        passes = self.program["options"].get("backward_passes_per_step", 1)
        for number, part in enumerate(one["rounds"]):
            last = number == len(one["rounds"]) - 1
            for _ in range(part["local"]):
                with self._no_sync():
                    self.backward(part)
            for i in range(passes):
                if last and one.get("unfinished") and i == passes - 1:
                    with self._no_sync():
                        self.backward(part)
                else:
                    self.backward(part, inf=last and one["inf"], retain=part["retain"])

    def _no_sync(self):
        return _All([self.job.no_sync(optimizer) for optimizer in self.optimizers])

    def iteration(self, one):
        self.zero(one["zero"])
        if one["fails"] and not self.job.is_oracle:
            self.job.expect(lambda: self.loss(self.job.rank, _reaching(one), fails=True).backward(), "planned")
        if one["fails"]:
            self.zero("to None")
        if one["refused"] and not self.job.is_oracle:
            part = _reaching(one)
            self.loss(self.job.rank, part).backward()
            self.job.expect(lambda: self.loss(self.job.rank, part).backward(), "no_sync()")
        if one["refused"]:
            self.zero("to None")
        self.rounds(one)
        if one["changes"] and self.program["scaler"]:
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
        for how in one["changes"]:
            self.change(how)
        for optimizer, steps in zip(self.optimizers, one["steps"]):
            if steps:
                self.scaler.step(optimizer) if self.program["scaler"] else optimizer.step()
        self.scaler.update() if self.program["scaler"] else None
        if "share" in one["changes"]:
            self.zero("by hand")  # gradients that share memory would be added up by the next backward
        for how in one["after"]:
            self.after(how)


def _reaching(one):
    """A round in which all ranks have a loss."""
    part = one["rounds"][0]
    return {**part, "heads": [head or 0 for head in part["heads"]]}


class _All:
    """Several contexts as one."""

    def __init__(self, contexts):
        self.contexts = contexts

    def __enter__(self):
        for context in self.contexts:
            context.__enter__()

    def __exit__(self, *error):
        for context in reversed(self.contexts):
            context.__exit__(*error)


def execute(job, program):
    """Runs the program; returns its parameters."""
    job.tolerance = 3e-3
    execution = Execution(job, program)
    for one in program["iterations"]:
        execution.iteration(one)
    return {name: param for name, param in execution.model.named_parameters()} | {
        f"extra{i}": param for i, param in enumerate(execution.extra)
    }
