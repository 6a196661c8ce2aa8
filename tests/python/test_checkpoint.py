"""horo.checkpoint.save() and load() of one process: what comes back, what is refused, and what others read."""

import json
import os
import subprocess
import sys
import threading
import types

import numpy
import pytest
import torch
from safetensors import safe_open
from torch import nn

import horo
from horo.checkpoint.keeper import keeper_of
from horo.checkpoint.library import Saver
from horo.elastic import Sampler, State, sharded
from horo.errors import HoroError

checkpoint = horo.checkpoint


def saved(path, x, **options):
    checkpoint.save(path, x, **options).wait()
    return path


def trained(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def assert_equal(one, other):
    assert isinstance(other, dict) if isinstance(one, dict) else type(one) is type(other), (one, other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))
    elif isinstance(one, numpy.ndarray):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes()
    elif isinstance(one, dict):
        assert set(one) == set(other)
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for pair in zip(one, other):
            assert_equal(*pair)
    else:
        assert one == other or one != one


DTYPES = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"]
DTYPES += ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SHAPES = [(), (0,), (1,), (3,), (5, 7), (2, 0, 3), (1, 1, 9)]


def test_tensors_of_all_types_and_shapes_come_back(tmp_path):
    values = {}
    for dtype in DTYPES:
        for shape in SHAPES:
            count = torch.Size(shape).numel() * torch.empty((), dtype=getattr(torch, dtype)).element_size()
            data = torch.arange(count, dtype=torch.int64).to(torch.uint8) % (2 if dtype == "bool" else 251)
            values[f"{dtype} {shape}"] = data.view(getattr(torch, dtype)).reshape(shape)
    there = {name: torch.zeros_like(value) for name, value in values.items()}
    saved(tmp_path / "x", {"all": values, "one": torch.tensor(2.5)})
    found = checkpoint.load(tmp_path / "x", {"all": there, "one": (one := torch.zeros(()))})
    assert_equal(found["all"], values)
    assert one.item() == 2.5


def test_a_tensor_and_its_conjugate_are_two(tmp_path):
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    saved(tmp_path / "x", {"tensor": tensor, "conjugate": tensor.conj(), "same": tensor.conj()})
    there = {name: torch.zeros(2, dtype=torch.complex64) for name in ("tensor", "conjugate", "same")}
    checkpoint.load(tmp_path / "x", there)
    assert_equal(there, {"tensor": tensor} | dict.fromkeys(("conjugate", "same"), tensor.conj().resolve_conj()))


def test_an_expanded_tensor_is_set_once(tmp_path):
    saved(tmp_path / "x", {"mask": torch.ones(2, 1).expand(2, 4), "other": torch.arange(8.0).reshape(2, 4)})
    one = torch.zeros(2, 1)
    checkpoint.load(tmp_path / "x", {"mask": one.expand(2, 4)})
    assert_equal(one, torch.ones(2, 1))
    with pytest.raises(ValueError, match="other is expanded, and cannot have the values"):
        checkpoint.load(tmp_path / "x", {"other": one.expand(2, 4)})


def test_plain_values_and_arrays_come_back(tmp_path):
    value = {"a": [1, 2.5, None, True, "text", (1, (2,)), {3: "three", (4, 5): b"bytes"}, {1, 2}, frozenset("ab"), 1j]}
    value["nan"], value["arrays"] = float("nan"), [numpy.arange(6).reshape(2, 3), numpy.float32(0.1)]
    value["numbers"] = [
        0.1 + 0.2,
        float("-inf"),
        1 << 63,
        -(1 << 200),
        complex(0.1, float("inf")),
        numpy.float64("nan"),
    ]
    array = numpy.arange(4.0)
    saved(tmp_path / "x", {"value": value, "array": array})
    other = numpy.zeros(4)
    found = checkpoint.load(tmp_path / "x", {"value": None, "array": other})
    assert list(found) == ["value"]
    assert_equal(found["value"], value)
    assert_equal(other, array)


def test_a_model_and_its_optimizer_go_on_with_equal_bits(tmp_path):
    model, optimizer = trained()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scheduler.step()
    saved(tmp_path / "x", {"model": model, "optimizer": optimizer, "scheduler": scheduler, "epoch": 7})
    there = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    moments = torch.optim.AdamW(there.parameters(), lr=1.0)
    steps = torch.optim.lr_scheduler.StepLR(moments, 1)
    fields = {"model": there, "optimizer": moments, "scheduler": steps, "epoch": 0}
    assert checkpoint.load(tmp_path / "x", fields) == {"epoch": 7}
    assert_equal(there.state_dict(), model.state_dict())
    assert_equal(moments.state_dict(), optimizer.state_dict())
    assert steps.last_epoch == 1
    only = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    checkpoint.load(tmp_path / "x", {"model": only})  # some of the fields
    assert_equal(only.state_dict(), model.state_dict())


def test_a_tensor_may_change_right_after_save(tmp_path):
    tensor, strided = torch.arange(1 << 20), torch.arange(100).reshape(10, 10).t()
    handle = checkpoint.save(tmp_path / "x", {"tensor": tensor, "strided": strided})
    tensor.zero_()
    strided.zero_()
    handle.wait()
    there, other = torch.zeros(1 << 20, dtype=torch.int64), torch.zeros(10, 10, dtype=torch.int64)
    checkpoint.load(tmp_path / "x", {"tensor": there, "strided": other})
    assert torch.equal(there, torch.arange(1 << 20))
    assert torch.equal(other, torch.arange(100).reshape(10, 10).t())


def test_a_checkpoint_is_replaced_when_the_new_one_is_whole(tmp_path):
    tensor = torch.zeros(3)
    for number in range(3):
        saved(tmp_path / "x", {"tensor": tensor.fill_(number), "number": number})
    assert checkpoint.load(tmp_path / "x", {"tensor": tensor, "number": 0}) == {"number": 2}
    assert sorted(os.listdir(tmp_path)) == [".lock", "x"]


def test_other_readers_of_safetensors(tmp_path):
    model, optimizer = trained()
    saved(tmp_path / "x", {"model": model, "optimizer": optimizer})
    (part,) = (tmp_path / "x").glob("*.safetensors")
    with safe_open(part, "pt") as reader:
        assert_equal(reader.get_tensor("model.0.weight"), model[0].weight.detach())
        assert_equal(reader.get_tensor("optimizer.state.0.weight.exp_avg"), optimizer.state[model[0].weight]["exp_avg"])


def test_a_tensor_with_two_names_is_written_once(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    saved(tmp_path / "x", {"model": model})
    rows = {row["name"]: row for row in json.loads((tmp_path / "x" / "index.json").read_text())["tensors"]}
    assert rows["model.1.weight"]["alias_of"] == "model.0.weight"
    untied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    checkpoint.load(tmp_path / "x", {"model": untied})
    assert_equal(untied[1].weight.detach(), model[0].weight.detach())


def test_tensors_that_are_one_here_are_equal_in_the_checkpoint(tmp_path):
    untied, tied = (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(2))
    tied[1].weight = tied[0].weight
    before = tied[0].weight.detach().clone()
    saved(tmp_path / "apart", {"model": untied, "a": torch.zeros(3), "b": torch.ones(3)})
    with pytest.raises(ValueError, match="load: model.0.weight and model.1.weight differ"):
        checkpoint.load(tmp_path / "apart", {"model": tied})
    one = torch.full((3,), 2.0)
    with pytest.raises(ValueError, match="load: a and b differ"):
        checkpoint.load(tmp_path / "apart", {"a": one, "b": one})
    assert_equal(tied[0].weight.detach(), before)
    assert_equal(one, torch.full((3,), 2.0))
    untied[1].weight.data.copy_(untied[0].weight.detach())
    saved(tmp_path / "equal", {"model": untied, "a": torch.ones(3), "b": torch.ones(3)})
    checkpoint.load(tmp_path / "equal", {"model": tied, "a": one, "b": one})
    assert_equal(tied[1].weight.detach(), untied[0].weight.detach())
    assert_equal(one, torch.ones(3))


def refused(path, x, text, kind=ValueError):
    before = {name: value.clone() for name, value in x.items() if isinstance(value, torch.Tensor)}
    with pytest.raises(kind, match=text):
        checkpoint.load(path, x)
    assert all(torch.equal(x[name], value) for name, value in before.items())


def test_what_does_not_fit_is_refused_by_name(tmp_path):
    model, optimizer = trained()
    path = saved(tmp_path / "x", {"model": model, "optimizer": optimizer, "a": torch.ones(3), "b": torch.ones(2, 2)})
    refused(
        path, {"b": torch.zeros(2, 2), "ema": 3}, "has no field 'ema'; it has a, b, model, optimizer|has no field 'ema'"
    )
    refused(path, {"a": torch.zeros(3), "b": torch.zeros(2, 3)}, r"b.*float32\[2, 2\].*float32\[2, 3\]|b.*\[2, 3\]")
    refused(path, {"a": torch.zeros(3, dtype=torch.float64)}, "a.*float64|a.*float32")
    smaller, larger = nn.Sequential(nn.Linear(4, 5)), nn.Sequential(*trained()[0], nn.Linear(2, 2))
    refused(path, {"model": smaller}, "has the tensor model.1.weight")
    refused(path, {"model": larger}, "model.3.weight")
    refused(path, {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=1.0)}, "AdamW.*SGD")


def test_bad_arguments(tmp_path):
    with pytest.raises(TypeError, match="a list; expected a State, or a dict of fields by name"):
        checkpoint.save(tmp_path / "x", [1])
    with pytest.raises(TypeError, match="expected a State, or a dict of fields by name"):
        checkpoint.save(tmp_path / "x", {1: 2})
    with pytest.raises(TypeError, match="a lock|lock"):
        checkpoint.save(tmp_path / "x", {"lock": threading.Lock()})
    with pytest.raises(ValueError, match="the path 3; expected the name of a folder"):
        checkpoint.save(3, {"a": 1})
    with pytest.raises(ValueError, match="trust=1; expected True or False"):
        checkpoint.save(tmp_path / "x", {"a": 1}, trust=1)
    with pytest.raises(HoroError, match="nothing"):
        checkpoint.load(tmp_path / "nothing", {"a": 1})
    with pytest.raises(ValueError, match="datetime64"):
        checkpoint.save(tmp_path / "x", {"a": numpy.zeros(3, "datetime64[s]")})
    (tmp_path / "file").write_text("no checkpoint")
    with pytest.raises(HoroError, match="file"):
        checkpoint.save(tmp_path / "file", {"a": 1}).wait()
    with pytest.raises(HoroError, match="file"):
        checkpoint.save(tmp_path / "file" / "x", {"a": 1}).wait()
    assert (tmp_path / "file").read_text() == "no checkpoint"


def test_the_end_of_a_function_frees_the_folder(tmp_path):
    keeper = keeper_of(tmp_path, None, 1, (3, True, False))
    border = types.SimpleNamespace(session=None, members=[0], me=0)
    assert keeper._own_paths(border) == []
    keeper.abandon(border)
    other = Saver()
    other.lock(str(tmp_path))  # as the rank 0 of the others, or the next job
    other.close()


def test_pickled_values_need_trust(tmp_path):
    value = slice(1, 2)
    with pytest.raises(TypeError, match="trust=True"):
        checkpoint.save(tmp_path / "x", {"a": value})
    saved(tmp_path / "x", {"a": value}, trust=True)
    with pytest.raises(ValueError, match="trust"):
        checkpoint.load(tmp_path / "x", {"a": None})
    assert checkpoint.load(tmp_path / "x", {"a": None}, trust=True) == {"a": value}


def test_damage_is_named_and_nothing_is_written(tmp_path):
    path = saved(tmp_path / "x", {"a": torch.ones(3), "b": torch.ones(3 << 20)})
    (part,) = path.glob("*.safetensors")
    with open(part, "r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"x")
    refused(path, {"a": torch.zeros(3), "b": torch.zeros(3 << 20)}, part.name, HoroError)
    part.unlink()
    refused(path, {"a": torch.zeros(3)}, part.name, HoroError)


@pytest.fixture
def small(tmp_path):
    """A file system of 3 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "small", folder], capture_output=True)
    if made.returncode != 0:
        pytest.skip("this process cannot mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_file_system_leaves_the_older_checkpoint_and_the_next_save_fits_again(small):
    path = saved(small / "x", {"a": torch.ones(1 << 18), "step": 1})
    with pytest.raises(HoroError, match=rf"cannot reserve the space of {small}/.*part-\S+: No space left on device"):
        saved(small / "x", {"a": torch.zeros(1 << 20), "step": 2})
    assert [name for name in os.listdir(small) if not name.startswith(".")] == ["x"]
    x = {"a": torch.zeros(1 << 18), "step": 0}
    assert checkpoint.load(path, x) == {"step": 1} and x["a"].min() == 1
    saved(small / "x", {"a": torch.full((1 << 18,), 3.0), "step": 3})
    assert checkpoint.load(path, x) == {"step": 3} and x["a"].max() == 3


def test_the_end_of_the_process_writes_what_was_begun(tmp_path):
    script = f"import horo, torch; horo.checkpoint.save({str(tmp_path / 'x')!r}, {{'a': torch.ones(1 << 22)}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    there = torch.zeros(1 << 22)
    checkpoint.load(tmp_path / "x", {"a": there})
    assert torch.equal(there, torch.ones(1 << 22))


def test_states(tmp_path):
    class InParts:
        def __init__(self):
            self.rows = torch.zeros(4, 2)

        def horo_state(self):
            yield "rows", self.rows, sharded((4, 2), [(0, 1), (1, 4)])

    def made():
        return State(own=InParts(), sampler=Sampler(10, batch_size=3), best=0.5, words=["a"])

    state = made()
    state.own.rows.copy_(torch.arange(8.0).reshape(4, 2))
    saved(tmp_path / "x", state)
    there = made()
    there.best, there.words = 0.0, []
    assert checkpoint.load(tmp_path / "x", there) == {"best": 0.5, "words": ["a"]}
    assert there.best == 0.5 and there.words == ["a"]
    assert torch.equal(there.own.rows, state.own.rows)


def test_torch_distributed_checkpoint_reads_it(tmp_path):
    import torch.distributed.checkpoint as dcp

    model, optimizer = trained()
    saved(
        tmp_path / "x",
        {"model": model, "optimizer": optimizer, "half": torch.ones(3).bfloat16(), "one": torch.tensor(2)},
    )
    there = {"model": trained(1)[0].state_dict(), "half": torch.zeros(3).bfloat16(), "one": torch.tensor(0)}
    there["optimizer"] = {"state": {"0.weight": {"exp_avg": torch.zeros(5, 4), "step": torch.tensor(0.0)}}}
    dcp.load(there, storage_reader=dcp.HuggingFaceStorageReader(str(tmp_path / "x")), no_dist=True)
    assert_equal(there["model"], model.state_dict())
    assert torch.equal(there["half"].float(), torch.ones(3)) and there["one"].item() == 2
    assert_equal(there["optimizer"]["state"]["0.weight"]["exp_avg"], optimizer.state[model[0].weight]["exp_avg"])


def converted(*arguments, code=0):
    words = [sys.executable, "-m", "horo.checkpoint", "convert", *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert done.returncode == code, done
    return done.stdout + done.stderr


def state_of(model, optimizer):
    """What a script for torch.save has."""
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7, "best": [0.5, (1, 2)]}


def test_a_file_of_torch_save_and_back(tmp_path):
    model, optimizer = trained()
    fields = {"model": model, "optimizer": optimizer, "epoch": 7, "best": [0.5, (1, 2)]}
    saved(tmp_path / "x", fields)
    converted(tmp_path / "x", tmp_path / "all.pt")
    found = torch.load(tmp_path / "all.pt", weights_only=True)
    assert_equal(found, state_of(model, optimizer))
    converted(tmp_path / "all.pt", tmp_path / "back", "--step", 5)
    assert json.loads((tmp_path / "back" / "index.json").read_text())["step"] == 5
    there, moments = trained(1)
    rest = checkpoint.load(tmp_path / "back", {"model": there, "optimizer": moments, "epoch": 0, "best": None})
    assert rest == {"epoch": 7, "best": [0.5, (1, 2)]}
    assert_equal(there.state_dict(), model.state_dict())
    assert_equal(moments.state_dict(), optimizer.state_dict())
    assert "--step -1" in converted(tmp_path / "all.pt", tmp_path / "y", "--step", -1, code=1)
    assert "exists already" in converted(tmp_path / "x", tmp_path / "all.pt", code=1)
    assert "is none of" in converted(tmp_path / "nothing", tmp_path / "y", code=1)
    torch.save({"model": slice(1)}, tmp_path / "code.pt")
    assert "cannot be loaded" in converted(tmp_path / "code.pt", tmp_path / "y", code=1)
    torch.save([1], tmp_path / "list.pt")
    assert "expected a dict" in converted(tmp_path / "list.pt", tmp_path / "y", code=1)
    assert not (tmp_path / "y").exists()


def test_a_folder_of_torch_distributed_checkpoint_and_back(tmp_path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model, optimizer = trained()
    saved(tmp_path / "x", {"model": model, "optimizer": optimizer, "epoch": 7})
    converted(tmp_path / "x", tmp_path / "dcp")
    there = {"model": trained(1)[0].state_dict(), "epoch": 0}
    dcp.load(there, checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert_equal(there["model"], model.state_dict())
    assert there["epoch"] == 7
    weights, moments = get_state_dict(model, optimizer)  # a foreign one
    dcp.save({"model": weights, "optimizer": moments, "epoch": 8}, checkpoint_id=tmp_path / "foreign", no_dist=True)
    assert "--trust" in converted(tmp_path / "foreign", tmp_path / "back", code=1)
    converted(tmp_path / "foreign", tmp_path / "back", "--trust")
    other, state = trained(1)
    assert checkpoint.load(tmp_path / "back", {"model": other, "optimizer": state, "epoch": 0}) == {"epoch": 8}
    assert_equal(other.state_dict(), model.state_dict())
    for param, twin in zip(model.parameters(), other.parameters()):
        assert_equal(state.state[twin], optimizer.state[param])
