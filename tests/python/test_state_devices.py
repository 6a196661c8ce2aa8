"""A model on another GPU than the current one: its optimizer's state comes to the GPU of its parameters. The tensors
are torch's fakes, which have devices and no values."""

import pytest

torch = pytest.importorskip("torch")
fakes = pytest.importorskip("torch._subclasses.fake_tensor")

import horo.torch as hvd  # noqa: E402
from horo.torch import objects  # noqa: E402
from horo.torch.optimizer_state import load_exactly  # noqa: E402
from horo.torch.sharding import Extent, gather_entries, kind_of, pack  # noqa: E402
from horo.torch.sharding.member_gather import Present  # noqa: E402
from horo.zero.pieces import Piece  # noqa: E402

CURRENT, OTHER, THIRD = (torch.device("cuda", number) for number in range(3))
HALF = torch.bfloat16


class WithoutDriver(torch.overrides.TorchFunctionMode):
    """x[a:b] and copy_() of fakes on GPUs: torch's own ask for a driver."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.__getitem__ and isinstance(args[1], slice):
            begin, end, _ = args[1].indices(len(args[0]))
            return args[0].narrow(0, begin, end - begin)
        if function is torch.Tensor.copy_:
            assert args[0].shape == args[1].shape
            return args[0]
        return function(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def fake_mode():
    with fakes.FakeTensorMode(), WithoutDriver():
        yield


def made(size, device=OTHER, dtype=torch.float32):
    return torch.zeros(size, device=device, dtype=dtype)


def adam(size, device=OTHER):
    param = torch.nn.Parameter(made(size, device))
    return param, torch.optim.Adam([param])


def arrived(size, device=CURRENT):
    """State as it comes from another rank: on the current GPU, and the step on the host."""
    many = {"exp_avg": made(size, device, HALF), "more": [{"deep": made(size, device)}], "count": 3}
    return {"step": made((), "cpu"), "exp_avg_sq": made(size, device), **many}


def devices_of(entry):
    tensors = (entry["exp_avg"], entry["exp_avg_sq"], entry["more"][0]["deep"], entry["step"])
    return [one.device for one in tensors]


BESIDE_IT = [OTHER, OTHER, OTHER, torch.device("cpu")]


def test_a_state_that_is_loaded_exactly_comes_to_the_gpu_of_its_parameter():
    param, optimizer = adam(4)
    entry = arrived(4)
    load_exactly(optimizer, optimizer.state_dict() | {"state": {0: entry}})
    found = optimizer.state[param]
    assert devices_of(found) == BESIDE_IT and found["exp_avg"].dtype is HALF and found["count"] == 3
    assert found["step"] is entry["step"] and devices_of(entry)[:3] == [CURRENT] * 3, "the given dict is as it was"


def test_a_step_follows():
    param = torch.nn.Parameter(made(4))
    optimizer = torch.optim.SGD([param], lr=0.1, momentum=0.9)
    load_exactly(optimizer, optimizer.state_dict() | {"state": {0: {"momentum_buffer": made(4, CURRENT)}}})
    param.grad = made(4)
    optimizer.step()  # of tensors on several devices it would raise


def test_a_state_stays_on_the_host_or_on_a_gpu_if_its_parameter_is_elsewhere():
    for device, other in (("cpu", CURRENT), (OTHER, torch.device("cpu"))):
        param, optimizer = adam(4, device)
        load_exactly(optimizer, optimizer.state_dict() | {"state": {0: arrived(4, other)}})
        assert devices_of(optimizer.state[param])[:3] == [other] * 3


@pytest.mark.parametrize("keeps", [False, True])
def test_the_state_of_a_divided_optimizer_is_loaded_to_the_gpu_of_its_parameter(keeps):
    param, optimizer = adam(4)
    with hvd.state_as_saved(optimizer, keeps_devices=keeps):
        optimizer.load_state_dict(optimizer.state_dict() | {"state": {0: arrived(4)}})
    assert devices_of(optimizer.state[param])[:2] == [OTHER] * 2


def test_tensors_that_arrive_have_room_on_the_gpu_of_the_parameters(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    likes = [objects._TensorLike((2,), HALF, kind, False, False) for kind in ("cuda", "cpu")]
    assert [one.device for one in objects.room((b"", likes), OTHER)] == [OTHER, torch.device("cpu")]
    assert [one.device for one in objects.room((b"", likes))] == [CURRENT, torch.device("cpu")]


def test_parts_of_several_gpus_are_packed_on_that_of_the_first_and_none_on_that_of_the_tensors():
    tensors = [made(5, "cpu"), made(5), made(7, THIRD)]
    kind = kind_of(tensors[1])
    both = [Extent(2, 0, 3), Extent(1, 1, 4)]
    assert pack(tensors, both, kind).device == THIRD
    assert pack(tensors, both, kind, out=made(6)).device == OTHER
    assert pack(tensors, (), kind).device == OTHER
    assert pack(tensors[:1], (), kind).device == CURRENT


class TwoMembers:
    """The gather of a member that has nothing, beside another one: what arrives is on the current GPU."""

    def __init__(self, rows):
        self.rows, self.given = rows, []

    def objects(self, value, expected=None):
        return Present((0, 1), (0, 0)), [value, self.rows]

    def tensors(self, tensors, name, expected=None):
        self.given += tensors
        many = sum(torch.Size(form[2]).numel() for _, forms in self.rows for form in forms.values())
        return None, None, [[one, torch.zeros(many, dtype=one.dtype, device=CURRENT)] for one in tensors]


@pytest.mark.parametrize("form", [("whole", (6,)), ("whole", (2, 3)), ("cut", (6,))])
def test_entries_of_another_member_are_joined_on_the_gpu_of_the_parameter(form):
    how, shape = form
    param = made((2, 3))
    gather = TwoMembers([((0, 0, 6), {"exp_avg": (how, (HALF, "cuda"), shape)})])
    ((tensor, entry),) = gather_entries(gather, [param], [], "it")
    assert tensor is param and entry["exp_avg"].device == OTHER
    assert [one.device for one in gather.given] == [OTHER]


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_a_piece_takes_its_state_to_the_gpu_of_its_parameter():
    piece = Piece(torch.nn.Parameter(made(600)), Extent(0, 256, 512), 0, False)
    found = piece.take({"exp_avg": made(600, CURRENT), "step": made((), "cpu"), "factor": made((), CURRENT)})
    assert [found[key].device.type for key in ("exp_avg", "step", "factor")] == ["cuda", "cpu", "cuda"]
    assert found["exp_avg"].device == found["factor"].device == OTHER and found["exp_avg"].shape == (256,)
