"""Checks of programs of torch.distributed: claims are printed and then checked, in order, on every rank."""

import datetime
import os
import pathlib
import sys

import torch
import torch.distributed as dist

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "programs"))

from left_out import to_run  # noqa: E402
from raising import raises  # noqa: E402, F401

DEADLINE = datetime.timedelta(seconds=60)


def check(*claims, backend="horo"):
    """Runs each function in one default group; the last line printed names the one that failed or hung."""
    dist.init_process_group(backend, timeout=DEADLINE)
    if backend == "horo" and os.environ.get("TEST_DEVICE") == "fake":
        devices = sys.modules["horo.torch.devices"]
        assert type(devices.places) is not devices.Places, "the tensors of this rank are those of the CPU"
    for claim in to_run(claims):
        print(f"{claim.__name__} ...", flush=True)
        torch.manual_seed(1)
        claim()
    dist.destroy_process_group()
    print("done", flush=True)


def equal(found, expected):
    assert found.dtype == expected.dtype, f"{found.dtype}, expected {expected.dtype}"
    assert torch.equal(found, expected), f"{found}, expected {expected}"


def close(found, expected, bound=1e-5):
    """Within a relative bound of what one process computes in float64."""
    scale = expected.double().abs().max().clamp(min=1e-30)
    worst = (found.double() - expected.double()).abs().max() / scale
    assert worst < bound, f"relative error {worst:g}, expected less than {bound:g}"
