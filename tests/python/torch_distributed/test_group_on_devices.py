"""Groups of torch.distributed whose tensors are on a device, by the fake of NCCL (tests/fake_devices.py)."""

import os
import pathlib

import pytest

SITE = pathlib.Path(__file__).resolve().parents[2] / "fake_site"  # for ranks that are not forked


@pytest.mark.parametrize("program", ["operations", "works"])
def test_a_program_of_the_cpu_has_the_same_results_by_nccl(launch, fake_cuda, program):
    fake = {"TEST_DEVICE": "fake", "HORO_CUDA_LIBRARY": str(fake_cuda), "HORO_NCCL_LIBRARY": str(fake_cuda)}
    path = os.pathsep.join([str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])])
    launch(program, 2, env=fake | {"HORO_GPU_BACKEND": "nccl", "HORO_DEADLOCK_MS": "1500", "PYTHONPATH": path})
