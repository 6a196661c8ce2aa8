"""horo.checkpoint.save() and load() of one process: kinds of modules and schedulers."""

import subprocess

import numpy
import pytest
import torch
from safetensors.torch import save_file
from test_launchers import executable

import horo
from horo.checkpoint import saving
from horo.checkpoint.convert import convert
from horo.elastic import Sampler, State

checkpoint = horo.checkpoint


def saved(path, x):
    checkpoint.save(path, x).wait()
    return path


def optimizer_of(seed):
    torch.manual_seed(seed)
    return torch.optim.AdamW(torch.nn.Linear(4, 5).parameters(), lr=0.01)


def schedules():
    """Functions that make a scheduler of an optimizer."""
    names = torch.optim.lr_scheduler
    yield lambda optimizer: names.MultiStepLR(optimizer, [1, 3, 3])
    yield lambda optimizer: names.OneCycleLR(optimizer, 0.1, total_steps=9)
    yield lambda optimizer: names.LambdaLR(optimizer, lambda number: 0.9**number)
    yield lambda optimizer: names.CosineAnnealingWarmRestarts(optimizer, 2)
    yield lambda optimizer: names.ChainedScheduler([names.ConstantLR(optimizer), names.ExponentialLR(optimizer, 0.9)])
    yield lambda optimizer: torch.optim.swa_utils.SWALR(optimizer, 0.05)
    yield lambda optimizer: names.SequentialLR(
        optimizer, [names.LinearLR(optimizer, 0.1, total_iters=2), names.CosineAnnealingLR(optimizer, 5)], [2]
    )


@pytest.mark.parametrize("made", list(schedules()))
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_schedulers_of_torch_go_on(tmp_path, made):
    optimizer, other = optimizer_of(0), optimizer_of(1)
    schedule, there = made(optimizer), made(other)
    for _ in range(2):
        schedule.step()
    saved(tmp_path / "x", {"optimizer": optimizer, "schedule": schedule})
    checkpoint.load(tmp_path / "x", {"optimizer": other, "schedule": there})
    for one in (schedule, there):
        one.step()
    assert other.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    assert there.state_dict() == schedule.state_dict()


class Counting(torch.nn.Linear):
    """With a state beside its tensors."""

    calls, scales = 0, torch.zeros(0)

    def get_extra_state(self):
        return {"calls": self.calls, "scales": self.scales}

    def set_extra_state(self, state):
        self.calls, self.scales = state["calls"], state["scales"]


def test_modules_keep_their_extra_state(tmp_path):
    model, there, third = (torch.nn.Sequential(Counting(2, 2), torch.nn.Linear(2, 2)) for _ in range(3))
    model[0].calls, model[0].scales = 7, torch.tensor([0.5, 2.0])
    saved(tmp_path / "x", {"model": model})
    checkpoint.load(tmp_path / "x", {"model": there})
    convert(str(tmp_path / "x"), str(tmp_path / "x.pt"))
    plain = torch.load(tmp_path / "x.pt", weights_only=True)["model"]
    assert plain.keys() == model.state_dict().keys()
    third.load_state_dict(plain)
    convert(str(tmp_path / "x.pt"), str(tmp_path / "y"))
    checkpoint.load(tmp_path / "y", {"model": (fourth := torch.nn.Sequential(Counting(2, 2), torch.nn.Linear(2, 2)))})
    for one in (there, third, fourth):
        assert one[0].calls == 7 and one[0].scales.tolist() == [0.5, 2.0]
        assert torch.equal(one[1].weight, model[1].weight)


class Masked(torch.nn.Linear):
    """With a buffer that is as long as the script wants, and in no state_dict()."""

    def __init__(self, length):
        super().__init__(2, 2)
        self.register_buffer("mask", torch.ones(length), persistent=False)
        self.register_buffer("kept", torch.zeros(2))


def test_buffers_that_are_not_persistent_are_in_no_checkpoint(tmp_path):
    model, there = Masked(3), Masked(5)
    saved(tmp_path / "x", {"model": model})
    checkpoint.load(tmp_path / "x", {"model": there})
    convert(str(tmp_path / "x"), str(tmp_path / "x.pt"))
    there.load_state_dict(torch.load(tmp_path / "x.pt", weights_only=True)["model"])
    torch.save({"model": model.state_dict()}, tmp_path / "y.pt")
    convert(str(tmp_path / "y.pt"), str(tmp_path / "y"))
    checkpoint.load(tmp_path / "y", {"model": (third := Masked(7))})
    saved(tmp_path / "z", {"model": {**model.state_dict(), "mask": model.mask}})  # as earlier versions did
    checkpoint.load(tmp_path / "z", {"model": (fourth := Masked(9))})
    for one in (there, third, fourth):
        assert torch.equal(one.weight, model.weight) and one.mask.sum() == one.mask.numel() > 3


class Shared(torch.nn.Module):
    """With a buffer that two modules have; state_dict() has it under the second name alone."""

    def __init__(self, value):
        super().__init__()
        self.first, self.second = torch.nn.Module(), torch.nn.Module()
        self.first.register_buffer("scale", torch.full((3,), value), persistent=False)
        self.second.register_buffer("scale", self.first.scale)


def test_a_buffer_that_is_persistent_under_its_second_name_is_saved(tmp_path):
    model, there, third = Shared(2.0), Shared(0.0), Shared(0.0)
    saved(tmp_path / "x", {"model": model})
    checkpoint.load(tmp_path / "x", {"model": there})
    convert(str(tmp_path / "x"), str(tmp_path / "x.pt"))
    third.load_state_dict(torch.load(tmp_path / "x.pt", weights_only=True)["model"])
    for one in (there, third):
        assert one.first.scale.tolist() == [2.0, 2.0, 2.0] and one.first.scale is one.second.scale


@pytest.mark.parametrize("tensor", [torch.eye(3).to_sparse(), torch.empty(3, device="meta")], ids=["sparse", "meta"])
def test_tensors_without_values_are_refused_before_a_save_begins(monkeypatch, tmp_path, tensor):
    monkeypatch.setattr(saving, "write", lambda *args: pytest.fail("a save has begun"))
    with pytest.raises(ValueError, match="the tensor one is .* expected values in memory"):
        checkpoint.save(tmp_path / "x", {"one": tensor})


def test_an_array_that_is_read_only_is_not_set(tmp_path):
    fixed = bytes(24)
    saved(tmp_path / "x", {"one": numpy.arange(3.0)})
    with pytest.raises(ValueError, match="the array one is read-only"):
        checkpoint.load(tmp_path / "x", {"one": numpy.frombuffer(fixed)})
    assert fixed == bytes(24)


def test_a_load_right_after_a_save_has_its_values(tmp_path):
    there = torch.zeros(1 << 22)
    checkpoint.save(tmp_path / "x", {"one": torch.ones(1 << 22)})
    checkpoint.load(tmp_path / "x", {"one": there})
    assert there.all()


def test_a_file_of_safetensors_becomes_the_tensors_of_modules(tmp_path):
    model, there = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    save_file({f"model.{name}": tensor for name, tensor in model.state_dict().items()}, tmp_path / "x.safetensors")
    words = [executable("horo"), "checkpoint", "convert", tmp_path / "x.safetensors", tmp_path / "x"]
    subprocess.run(words, check=True, timeout=60)
    checkpoint.load(tmp_path / "x", {"model": there})
    assert torch.equal(there.weight, model.weight)
    with pytest.raises(ValueError, match="has tensors alone; expected modules, tensors and dicts .*, and epoch is int"):
        checkpoint.load(tmp_path / "x", {"model": there, "epoch": 0})


def test_a_file_of_torch_save_has_the_pass_of_its_sampler_and_the_step_of_convert(tmp_path):
    sampler = Sampler(8, batch_size=2, seed=1)
    sampler.start(3)
    torch.save({"sampler": sampler.state_dict(), "best": 2.5}, tmp_path / "x.pt")
    convert(str(tmp_path / "x.pt"), str(tmp_path / "x"), step=12)
    state = State(sampler=Sampler(8, batch_size=2, seed=1), best=0.0)
    checkpoint.load(tmp_path / "x", state)
    assert state._place() == {"pass": 3, "step": 12} and state.best == 2.5


def test_an_optimizer_without_the_module_it_was_saved_with_is_refused_with_the_remedy(tmp_path):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    saved(tmp_path / "x", {"model": model, "optimizer": optimizer})
    with pytest.raises(ValueError, match=r"as optimizer\.params\.0; .* give the same modules"):
        checkpoint.load(tmp_path / "x", {"optimizer": optimizer})


def test_convert_into_a_folder_that_is_missing(tmp_path):
    saved(tmp_path / "x", {"one": torch.ones(2)})
    with pytest.raises(ValueError, match="there is no folder"):
        convert(str(tmp_path / "x"), str(tmp_path / "none" / "x.pt"))
