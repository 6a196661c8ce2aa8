"""What the programs of horo.zero train, under plain horo and divided, and how they compare the bits."""

import hashlib

import torch
from torch import nn

import horo
import horo.torch as hvd

WORDS, WIDTH = 61, 17


class Odd(nn.Module):
    """Odd, scalar, empty, tied, frozen, unused and transposed parameters; matrices of more than one block."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(7)
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.up = nn.Linear(WIDTH, 59)
        self.down = nn.Linear(59, WIDTH, bias=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.frozen = nn.Parameter(torch.ones(7), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(300))
        self.odd = nn.Parameter(torch.randn(1003))
        self.turned = nn.Parameter(torch.randn(31, WIDTH).t())
        self.to(dtype)

    def add_empty(self):
        self.empty = nn.Parameter(torch.zeros(0, 4, dtype=self.scale.dtype))
        return self

    def forward(self, words):
        hidden = self.embedding(words)
        hidden = hidden + self.down(torch.tanh(self.up(hidden)))
        extra = self.turned.sum(1) * 1e-3 + (self.odd * self.odd).sum() * 1e-3 * self.frozen.sum()
        return self.head(self.norm(hidden) * self.scale + extra)


class Muon(torch.optim.Optimizer):
    """Momentum whose matrices are made nearly orthogonal, by Newton and Schulz: it needs whole matrices."""

    def __init__(self, params, lr=0.01):
        super().__init__(params, {"lr": lr, "momentum": 0.9})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(param)
                change = state["momentum"].mul_(group["momentum"]).add_(param.grad)
                if change.dim() == 2 and change.numel():
                    change = change / (change.norm() + 1e-7)
                    for _ in range(3):
                        change = 1.5 * change - 0.5 * change @ change.T @ change
                param.add_(change, alpha=-group["lr"])


def two_groups(model, **options):
    """Matrices and the rest, the latter without weight decay."""
    named = list(model.named_parameters())
    matrices = [param for _, param in named if param.dim() > 1]
    rest = [param for _, param in named if param.dim() <= 1]
    return [{"params": matrices, **options}, {"params": rest, "weight_decay": 0.0}]


OPTIMIZERS = {
    "SGD": lambda model: torch.optim.SGD(two_groups(model, lr=0.05), lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    "AdamW": lambda model: torch.optim.AdamW(two_groups(model), lr=0.01, weight_decay=0.1),
    "RMSprop": lambda model: torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.5),
    "Adafactor": lambda model: torch.optim.Adafactor(model.parameters(), lr=0.01),
    "Muon": lambda model: Muon(model.parameters()),
    "fused Adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01, fused=True),
    "foreach Adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01, foreach=True, amsgrad=True),
    "Adagrad": lambda model: torch.optim.Adagrad(model.parameters(), lr=0.01),
}


def wrapped(kind, optimizer, model, **options):
    """kind: "plain" or "zero"."""
    wrap = horo.zero.DistributedOptimizer if kind == "zero" else hvd.DistributedOptimizer
    return wrap(optimizer, named_parameters=model.named_parameters(), **options)


def batches(rank, steps, seed=0):
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return [torch.randint(0, WORDS, (4, 9), generator=generator) for _ in range(steps)]


def loss_of(model, words):
    scores = model(words).flatten(0, 1)
    return nn.functional.cross_entropy(scores.float() if scores.dtype.itemsize < 4 else scores, words.flatten())


def train(model, optimizer, words, passes=1, clip=None, scheduler=None):
    """One step for each `passes` batches."""
    norms = []
    for first in range(0, len(words), passes):
        optimizer.zero_grad()
        for batch in words[first : first + passes]:
            loss_of(model, batch).backward()
        if clip is not None:
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), clip)))
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return norms


def sha(tensors):
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def sha_of(model):
    """Of all parameters; the ranks have the same."""
    mine = sha(model.parameters())
    found = set(hvd.allgather_object(mine))
    assert found == {mine}, "the ranks have different parameters"
    return mine


def sha_of_state(content):
    """Of a state_dict()."""
    digest = hashlib.sha256(repr(content["param_groups"]).encode())
    for number, entry in sorted(content["state"].items()):
        for key, value in sorted(entry.items()):
            is_tensor = isinstance(value, torch.Tensor)
            text = f"{number} {key} {(value.dtype, list(value.shape)) if is_tensor else value}"
            digest.update(text.encode() + (sha([value]).encode() if is_tensor else b""))
    return digest.hexdigest()


def divided_state_bytes(optimizer):
    """The bytes of what this rank has of the state, without scalars."""
    state = optimizer._zero.state.values()
    return sum(value.nbytes for entry in state for value in entry.values() if torch.is_tensor(value) and value.dim())


def adam(model, kind, **options):
    return wrapped(kind, torch.optim.Adam(model.parameters(), lr=0.01), model, **options)


def alike(script):
    """script(kind) returns what has to be equal under plain horo and divided."""
    plain, divided = script("plain"), script("zero")
    assert plain == divided, f"{script.__qualname__}: {plain}, divided {divided}"
