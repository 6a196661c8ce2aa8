"""Optimizer states and objects of any types and dtypes are those of the root on all ranks. A module of values.py."""

import collections
import dataclasses
import pickle

import torch
from claims import raises, same_bits

import horo.torch as hvd
from horo.torch import objects
from horo.torch.elastic.state import OptimizerStateHandler
from horo.torch.optimizer_state import load_exactly

ROOT = 1
Pair = collections.namedtuple("Pair", "first second")


class Names(dict):
    """A mapping of a user."""


@dataclasses.dataclass
class Moments:
    mean: torch.Tensor
    steps: int


def told(value):
    """A value as a text, with types, dtypes and bits."""
    if isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {value.dtype} {value.tolist()} {value.requires_grad}"
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}{told(vars(value))}"
    if isinstance(value, dict):
        more = f" {value.default_factory}" if isinstance(value, collections.defaultdict) else ""
        return f"{type(value).__name__}{more}{[(key, told(inner)) for key, inner in value.items()]}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}{[told(inner) for inner in value]}"
    return repr(value)


def expect_the_roots(value, roots):
    for text in hvd.allgather_object((told(value), roots)):
        assert text[0] == hvd.broadcast_object(roots, ROOT), f"{text[0]}\nexpected {text[1]}"


def model_of(dtype=torch.float32, kind=torch.optim.Adam, **options):
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(3, 2).to(dtype)
    return model, kind(model.parameters(), lr=0.1 * (hvd.rank() + 1), **options)


def trained(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 3, dtype=model.weight.dtype)).square().sum().backward()
    optimizer.step()


class WideAdam(torch.optim.Optimizer):
    """Keeps its moments in float32, whatever the dtype of the parameters."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if not state:
                    state["mean"] = torch.zeros_like(param, dtype=torch.float32)
                state["mean"].mul_(0.9).add_(param.grad.float(), alpha=0.1)
                param.add_((state["mean"] * -group["lr"]).to(param.dtype))


def state_keeps_its_dtype_where_the_parameter_has_another():
    for dtype, kind in ((torch.bfloat16, WideAdam), (torch.float16, WideAdam), (torch.float64, WideAdam)):
        model, optimizer = model_of(dtype, kind)
        for _ in range(3 if hvd.rank() == ROOT else 1):
            trained(model, optimizer)
        roots = told(optimizer.state_dict())
        hvd.broadcast_parameters(model.state_dict(), ROOT)
        hvd.broadcast_optimizer_state(optimizer, ROOT)
        expect_the_roots(optimizer.state_dict(), roots)
        trained(model, optimizer)
        expect_the_roots(model.state_dict(), told(model.state_dict()))


def settings_of_torchs_optimizers_travel_whole():
    for kind, options in (
        (torch.optim.Adam, {"capturable": False, "foreach": True}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.SGD, {}),
        (torch.optim.Adagrad, {}),
        (torch.optim.Rprop, {}),
        (torch.optim.NAdam, {}),
    ):
        model, optimizer = model_of(torch.float32, kind, **options)
        if hvd.rank() == ROOT:
            trained(model, optimizer)
            optimizer.param_groups[0]["lr"] = 0.25 if options.get("foreach") else torch.tensor(0.25)
            optimizer.param_groups[0]["note"] = Names(a=Pair(1, torch.ones(1)))
        elif hvd.rank() == 2:
            trained(model, optimizer)
            trained(model, optimizer)
        roots = told(optimizer.state_dict())
        hvd.broadcast_optimizer_state(optimizer, ROOT)
        hvd.broadcast_parameters(model.state_dict(), ROOT)
        expect_the_roots(optimizer.state_dict(), roots)
        trained(model, optimizer)
        expect_the_roots(
            [model.state_dict(), optimizer.state_dict()], told([model.state_dict(), optimizer.state_dict()])
        )


def state_of_any_type_keeps_it():
    shared = torch.full((2,), 7.0)
    kinds = {
        "ordered": collections.OrderedDict(z=torch.ones(1), a=None),
        "default": collections.defaultdict(list, {3: [torch.zeros(2, dtype=torch.int64)]}),
        "pair": Pair(torch.ones(2, dtype=torch.complex64), (1, [2.5])),
        "names": Names(x=torch.tensor(3, dtype=torch.uint8)),
        "moments": Moments(torch.ones(1, dtype=torch.float64), 4),
        "deque": collections.deque([1, 2], maxlen=2),
        "set": {1},
        "twice": [shared, shared],
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "strided": torch.arange(6.0).view(2, 3).t(),
        "boolean": torch.tensor([True, False]),
        "sparse": None,
        "step": 12,
        "none": None,
        "empty": torch.empty(0, 3),
    }
    for wrap in (lambda state: state, collections.OrderedDict, Names):
        model, optimizer = model_of(torch.bfloat16, torch.optim.SGD)
        if hvd.rank() == ROOT:
            optimizer.state[model.weight] = wrap(kinds)
            optimizer.state["common"] = collections.OrderedDict(rank=hvd.rank())
        else:
            optimizer.state[model.bias]["mine"] = torch.ones(1)
        roots = told(optimizer.state_dict())
        hvd.broadcast_optimizer_state(optimizer, ROOT)
        expect_the_roots(optimizer.state_dict(), roots)
        state = optimizer.state[model.weight]
        assert model.bias not in optimizer.state and optimizer.state["common"]["rank"] == ROOT
        assert state["twice"][0] is state["twice"][1] and type(optimizer.state).__name__ == "defaultdict"


class Own(torch.optim.SGD):
    """Converts what it loads."""

    def load_state_dict(self, state):
        super().load_state_dict(state)
        for values in self.state.values():
            values["seen"] = True


def an_optimizer_that_loads_in_its_own_way_does_so_on_all_ranks():
    model, optimizer = model_of(torch.bfloat16, Own, momentum=0.9)
    trained(model, optimizer)
    optimizer.state[model.weight]["momentum_buffer"] = torch.full((2, 3), 1 / 3)
    hvd.broadcast_optimizer_state(optimizer, ROOT)
    expect_the_roots(optimizer.state_dict(), told(optimizer.state_dict()))
    hooked = model_of(torch.bfloat16, torch.optim.SGD)[1]
    hooked.register_load_state_dict_post_hook(lambda loaded: loaded.param_groups[0].update(lr=9.0))
    hvd.broadcast_optimizer_state(hooked, ROOT)
    assert hooked.param_groups[0]["lr"] == 9.0


def distributed(model, optimizer):
    return hvd.DistributedOptimizer(optimizer, model.named_parameters())


def the_state_of_a_distributed_optimizer_is_the_roots():
    """The ranks differ in parameters and settings, so their states do."""
    model, optimizer = model_of(torch.bfloat16, WideAdam)
    optimizer = distributed(model, optimizer)
    for _ in range(2):
        trained(model, optimizer)
    optimizer.state[model.weight]["mean"] += hvd.rank() / 3
    roots = told(optimizer.state_dict())
    assert len(set(hvd.allgather_object(roots))) == hvd.size() and "torch.float32" in roots
    hvd.broadcast_optimizer_state(optimizer, ROOT)
    expect_the_roots(optimizer.state_dict(), roots)


class Wrapper:
    """Hands everything over to an optimizer, as wrappers of trainers do."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def __getattr__(self, name):
        return getattr(self.__dict__["optimizer"], name)


def an_optimizer_behind_another_object_has_the_roots_state():
    model, optimizer = model_of(torch.float32, torch.optim.Adam)
    trained(model, optimizer)
    roots = told(optimizer.state_dict())
    hvd.broadcast_optimizer_state(Wrapper(optimizer), ROOT)
    expect_the_roots(optimizer.state_dict(), roots)


def an_optimizer_with_other_groups_is_an_error_on_all_ranks():
    model = torch.nn.Linear(3, 2)
    groups = [[model.weight, model.bias]] if hvd.rank() == 2 else [[model.weight], [model.bias]]
    optimizer = torch.optim.SGD([{"params": group} for group in groups], lr=0.1)
    with raises(hvd.Mismatch, "rank 2: ValueError: loaded state dict has a different number of parameter groups"):
        hvd.broadcast_optimizer_state(optimizer, ROOT)


def a_restored_state_has_the_bits_that_were_saved():
    for wrap in (lambda _, optimizer: optimizer, distributed):
        restored_as_saved(wrap)


def restored_as_saved(wrap):
    model, optimizer = model_of(torch.bfloat16, WideAdam)
    optimizer = wrap(model, optimizer)
    trained(model, optimizer)
    handler, saved = OptimizerStateHandler(optimizer), told(optimizer.state_dict())
    trained(model, optimizer)
    handler.restore()
    assert told(optimizer.state_dict()) == saved
    handler.sync()
    kept = optimizer.state[model.weight]["mean"]
    load_exactly(optimizer, optimizer.state_dict())
    same_bits(optimizer.state[model.weight]["mean"], kept)


def objects_of_more_than_four_gibibytes_are_read_whole():
    """The memory behind the object is reserved and never touched: a pickle ends before it."""
    head = objects.to_bytes({"rank": hvd.rank()})
    for nbytes in ((1 << 31) + 100, (1 << 32) + 7):
        payload = torch.empty(nbytes, dtype=torch.uint8)
        payload[: head.numel()] = head
        assert objects.from_bytes(payload) == {"rank": hvd.rank()}
    text = objects.to_bytes("x")
    assert text.dtype is torch.uint8 and pickle.loads(bytes(text.tolist())) == "x"


CLAIMS = [
    state_keeps_its_dtype_where_the_parameter_has_another,
    settings_of_torchs_optimizers_travel_whole,
    state_of_any_type_keeps_it,
    an_optimizer_that_loads_in_its_own_way_does_so_on_all_ranks,
    the_state_of_a_distributed_optimizer_is_the_roots,
    an_optimizer_behind_another_object_has_the_roots_state,
    an_optimizer_with_other_groups_is_an_error_on_all_ranks,
    a_restored_state_has_the_bits_that_were_saved,
    objects_of_more_than_four_gibibytes_are_read_whole,
]
