"""horo.checkpoint.save() and load() of one process: kinds of modules and schedulers."""

import pytest
import torch

import horo

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
