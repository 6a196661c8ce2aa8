"""Names in checkpoints: fields that begin alike, dicts of tensors that are converted, tensors of extra states."""

import io
import subprocess

import pytest
import torch
from test_checkpoint import assert_equal, checkpoint, saved
from test_checkpoint_kinds import Counting
from test_launchers import executable

from horo.checkpoint.convert import convert


def test_a_field_is_loaded_beside_one_whose_name_begins_with_its_own(tmp_path):
    net, ema, there = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3, bias=False), torch.nn.Linear(2, 3)
    saved(tmp_path / "x", {"net": net, "net.ema": ema, "net.ema.best": torch.ones(2)})
    checkpoint.load(tmp_path / "x", {"net": there})
    assert torch.equal(net.weight, there.weight)
    convert(str(tmp_path / "x"), str(tmp_path / "x.pt"))
    found = torch.load(tmp_path / "x.pt", weights_only=True)
    assert_equal(
        found, {"net": dict(net.state_dict()), "net.ema": dict(ema.state_dict()), "net.ema.best": torch.ones(2)}
    )
    with pytest.raises(ValueError, match="has the tensor net.ema.weight, which the object to load does not have"):
        checkpoint.load(tmp_path / "x", {"net.ema": torch.nn.Module()})


def test_a_tensor_with_a_name_of_another_field_is_refused(tmp_path):
    net = torch.nn.Module()
    net.ema = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="net.ema.weight of the field .net. has a name of the field .net.ema"):
        checkpoint.save(tmp_path / "x", {"net": net, "net.ema": torch.ones(2)})


@pytest.mark.parametrize("through", ["pt", "dcp"])
def test_a_dict_of_tensors_goes_through_a_conversion_and_back(tmp_path, through):
    value = {"a": torch.arange(3.0), "b.c": torch.ones(2, 2)}
    saved(tmp_path / "x", {"table": value, "epoch": 3})
    middle = str(tmp_path / ("x.pt" if through == "pt" else "x"))
    if through == "dcp":
        convert(str(tmp_path / "x"), middle := str(tmp_path / "dcp"))
    else:
        convert(str(tmp_path / "x"), middle)
    convert(middle, str(tmp_path / "y"), trust=True)
    found = checkpoint.load(tmp_path / "y", {"table": {}, "epoch": 0})
    assert found["epoch"] == 3
    assert_equal(found["table"], value)


def test_fields_that_are_all_tensors_come_back_as_a_dict_and_the_message_says_so(tmp_path):
    saved(tmp_path / "x", {"a": torch.ones(2), "b": torch.zeros(3)})
    convert(str(tmp_path / "x"), str(tmp_path / "x.pt"))
    convert(str(tmp_path / "x.pt"), str(tmp_path / "y"))
    with pytest.raises(ValueError, match=r"no field .a.; .* tensor model.a: load \{'model': \{'a': \.\.\.\}\}"):
        checkpoint.load(tmp_path / "y", {"a": torch.zeros(2)})
    (found,) = checkpoint.load(tmp_path / "y", {"model": {}}).values()
    assert_equal(found, {"a": torch.ones(2), "b": torch.zeros(3)})


def model():
    return torch.nn.Sequential(Counting(2, 2), torch.nn.Linear(2, 2))


def through_safetensors(folder):
    """The checkpoint x becomes a file, and that the checkpoint y."""
    for source, target in (("x", "x.safetensors"), ("x.safetensors", "y")):
        words = [executable("horo"), "checkpoint", "convert", folder / source, folder / target]
        subprocess.run(words, check=True, timeout=60)


def test_a_file_of_safetensors_has_the_tensors_of_extra_states(tmp_path):
    one, there = model(), model()
    one[0].calls, one[0].scales = 7, torch.tensor([0.5, 2.0])
    there[0].calls = 2
    saved(tmp_path / "x", {"model": one, "table": {"a": torch.ones(3)}, "one": torch.ones(1)})
    through_safetensors(tmp_path)
    found = checkpoint.load(tmp_path / "y", {"model": there, "table": {}})
    assert there[0].scales.tolist() == [0.5, 2.0] and there[0].calls == 2  # which no file of safetensors has
    assert torch.equal(there[1].weight, one[1].weight)
    assert_equal(found["table"], {"a": torch.ones(3)})
    for name, other in (
        ("nothing", {}),
        ("one", {}),
        ("table", {"a": torch.ones(3), "n": 3}),
        ("table", {"b": torch.ones(3)}),
    ):
        with pytest.raises(ValueError, match=f"tensors alone; .* and {name} is another dict"):
            checkpoint.load(tmp_path / "y", {name: other})


def test_a_nested_dict_is_not_loaded_from_a_file_of_safetensors(tmp_path):
    value = {"x": {"y": torch.ones(3)}}
    saved(tmp_path / "x", {"table": value})
    through_safetensors(tmp_path)
    with pytest.raises(ValueError, match="tensors alone; .* and table is another dict"):
        checkpoint.load(tmp_path / "y", {"table": value})


def test_a_tensor_that_was_converted_is_loaded_as_one(tmp_path):
    torch.save({"a": torch.ones(2), "n": 3}, tmp_path / "x.pt")
    convert(str(tmp_path / "x.pt"), str(tmp_path / "y"))
    found = checkpoint.load(tmp_path / "y", {"a": None, "n": 0})
    assert_equal(found, {"a": torch.ones(2), "n": 3})
    with pytest.raises(ValueError, match="a is a tensor in the checkpoint, and a dict here"):
        checkpoint.load(tmp_path / "y", {"a": {}, "n": 0})


def test_weights_are_loaded_beside_an_extra_state_that_no_checkpoint_has(tmp_path):
    one, there = OneTensor(2, 2), OneTensor(2, 2)
    torch.save({"model": {"weight": one.weight.detach(), "bias": one.bias.detach()}}, tmp_path / "x.pt")
    convert(str(tmp_path / "x.pt"), str(tmp_path / "y"))
    there.extra = io.BytesIO(b"other")
    for _ in range(2):
        checkpoint.load(tmp_path / "y", {"model": there})
    assert there.extra.getvalue() == b"other" and torch.equal(one.weight, there.weight)


def test_what_is_pickled_is_converted_with_trust_alone(tmp_path):
    checkpoint.save(tmp_path / "x", {"span": range(3)}, trust=True).wait()
    with pytest.raises(ValueError, match=r"/x: a pickled value; expected trust=True"):
        convert(str(tmp_path / "x"), str(tmp_path / "x.pt"))
    convert(str(tmp_path / "x"), str(tmp_path / "x.pt"), trust=True)
    assert torch.load(tmp_path / "x.pt", weights_only=False) == {"span": range(3)}


class OneTensor(torch.nn.Linear):
    """Whose extra state is a tensor."""

    extra = torch.zeros(2)

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


def test_an_extra_state_that_is_a_tensor_goes_through_a_conversion_and_back(tmp_path):
    one, there = OneTensor(2, 2), OneTensor(2, 2)
    one.extra = torch.tensor([1.0, 2.0])
    saved(tmp_path / "x", {"model": one})
    convert(str(tmp_path / "x"), str(tmp_path / "x.pt"))
    convert(str(tmp_path / "x.pt"), str(tmp_path / "y"))
    checkpoint.load(tmp_path / "y", {"model": there})
    assert there.extra.tolist() == [1.0, 2.0] and torch.equal(one.weight, there.weight)
