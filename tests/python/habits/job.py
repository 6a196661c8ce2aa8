"""A habit is a function of a job. It is run twice: on every rank with horo, in float32, and in one process without
horo, in float64, where the job averages the gradients of all ranks by hand. Both runs return the same values.

The second run is the definition of the rule: when backward() returns, p.grad is the reduced gradient.
"""

import contextlib
import hashlib

import torch

import horo.torch as hvd


def values_of(result):
    """The tensors that a habit returned, by name: a module, a dict, or a list."""
    if isinstance(result, torch.nn.Module):
        result = dict(result.named_parameters())
    if not isinstance(result, dict):
        result = {str(i): value for i, value in enumerate(result)}
    return {name: torch.as_tensor(value).detach().clone() for name, value in result.items()}


def digest(values):
    """The sha256 of all bits of these tensors."""
    state = hashlib.sha256()
    for name, value in sorted(values.items()):
        state.update(name.encode())
        state.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def mse(model, x, y):
    return ((model(x) - y) ** 2).mean()


class Job:
    """What a habit may use in both runs."""

    tolerance = 2e-4  # of the largest value of a tensor

    def data(self, rank, step, *shape):
        """Random numbers that depend on the rank and the step."""
        generator = torch.Generator().manual_seed(1009 * step + rank)
        return torch.randn(shape, generator=generator).to(self.dtype)

    def same(self, *shape, seed=1):
        """Random numbers that are equal on all ranks."""
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(self.dtype)

    def parameter(self, *shape, seed=1):
        return torch.nn.Parameter(self.same(*shape, seed=seed))

    def net(self, *widths, seed=3):
        """A perceptron that has the same weights on all ranks."""
        widths = widths or (4, 8, 3)
        torch.manual_seed(seed)
        layers = []
        for a, b in zip(widths, widths[1:]):
            layers += [torch.nn.Linear(a, b), torch.nn.Tanh()]
        return torch.nn.Sequential(*layers[:-1]).to(self.dtype)

    def regression(self, model, step, rows=5):
        """Returns loss_of(rank) for a perceptron of net()."""
        ends = [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
        wide, narrow = ends[0].in_features, ends[-1].out_features
        return lambda r: mse(model, self.data(r, step, rows, wide), self.data(r, step + 500, rows, narrow))

    def sgd(self, model, lr=0.1, momentum=0.9, **options):
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum, **options)

    def train(self, model, optimizer, steps, first=0):
        """Ordinary steps."""
        for step in range(first, first + steps):
            optimizer.zero_grad()
            self.backward(self.regression(model, step))
            optimizer.step()


class Ranks(Job):
    """The run on every rank, with horo."""

    is_oracle = False
    dtype = torch.float32

    def __init__(self, settings):
        """settings: those of the session."""
        self.rank, self.size, self.settings = hvd.rank(), hvd.size(), settings

    def wrap(self, optimizer, named=None, **options):
        named = named.named_parameters() if isinstance(named, torch.nn.Module) else named
        return hvd.DistributedOptimizer(optimizer, named_parameters=named, **options)

    def backward(self, loss_of, **options):
        """Runs backward of this rank's loss, if it has one. Returns the loss."""
        loss = loss_of(self.rank)
        if loss is not None:
            loss.backward(**options)
        return loss

    def no_sync(self, optimizer):
        return optimizer.no_sync()

    def expect(self, call, *parts, ranks=None):
        """On these ranks, or on all, the call raises an exception whose text has all these parts."""
        if ranks is not None and self.rank not in ranks:
            call()
            return None
        try:
            call()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            missing = [part for part in parts if part.lower() not in text.lower()]
            assert not missing, f"{missing} not in: {text}"
            return error.with_traceback(None)  # its frames hold models and optimizers
        raise AssertionError(f"nothing was raised; expected an error with {parts}")

    def agree(self):
        """A collective of another kind: the session is usable."""
        total = hvd.allreduce(torch.tensor([float(self.rank)]), op=hvd.Sum, name="agree").item()
        assert total == self.size * (self.size - 1) / 2, total


class Oracle(Job):
    """The run in one process. The gradients of all ranks are computed one after the other and combined."""

    is_oracle = True
    dtype = torch.float64
    rank = 0

    def __init__(self, size):
        self.size = size
        self._wrapped = []  # the optimizer, options
        self._local = []  # of each rank: the gradients that no round has covered, by parameter
        self._depth = 0  # of no_sync()
        self._passes = 0

    def wrap(self, optimizer, named=None, **options):
        self._wrapped.append((optimizer, options))
        optimizer.no_sync = lambda: self.no_sync(optimizer)
        optimizer.synchronize = self._flush
        optimizer.skip_synchronize = contextlib.nullcontext
        optimizer.register_step_pre_hook(lambda *_: self._flush())
        return optimizer

    def forget(self, optimizer):
        """The script deletes this optimizer."""
        self._wrapped = [pair for pair in self._wrapped if pair[0] is not optimizer]

    def _params(self):
        """All parameters with the options of the optimizer that was wrapped last."""
        found = {}
        for optimizer, options in self._wrapped:
            for group in optimizer.param_groups:
                found.update((param, options) for param in group["params"])
        return found

    def backward(self, loss_of, **options):
        params = self._params()
        before = {param: param.grad for param in params}
        losses = []
        for rank in range(self.size):
            for param in params:
                param.grad = None
            loss = loss_of(rank)
            if loss is not None:
                loss.backward(**options)
                losses.append(loss.detach())
            self._keep(rank, {param: param.grad for param in params if param.grad is not None})
        for param, gradient in before.items():
            param.grad = gradient
        if self._depth == 0:
            self._passes += 1
        passes = max([choice.get("backward_passes_per_step", 1) for choice in params.values()], default=1)
        if self._depth == 0 and self._passes >= passes:
            self._flush()
        return torch.stack(losses).mean() if losses else None

    def _keep(self, rank, gradients):
        while len(self._local) <= rank:
            self._local.append({})
        for param, gradient in gradients.items():
            kept = self._local[rank].get(param)
            self._local[rank][param] = gradient if kept is None else kept + gradient

    def _flush(self):
        """A round: combines what the ranks have."""
        local, self._local, self._passes = self._local, [], 0
        for param, options in self._params().items():
            parts = [gradients[param] for gradients in local if param in gradients]
            if not parts:
                continue
            total = sum(parts[1:], parts[0])
            if options.get("sparse_as_dense") and total.is_sparse:
                total = total.to_dense()
            if options.get("op", hvd.Average) == hvd.Average:
                total = total / self.size
            param.grad = total if param.grad is None else param.grad + total

    @contextlib.contextmanager
    def no_sync(self, _optimizer):
        self._depth += 1
        yield
        self._depth -= 1

    def expect(self, call, *parts, ranks=None):
        """The calls that fail have no effect."""

    def agree(self):
        """Nothing can fail here."""
