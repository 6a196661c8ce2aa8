"""Tensors of CUDA devices, on a fake of the plug-in (tests/fake_devices.py): programs that other tests run on the CPU
have the same results there. tools/gpu_proof suite runs all others so."""

import json
import sys

import pytest
from test_elastic import CAUGHT, TORCH_DEADLINE_S, check_steps, command, lines_of, run
from test_launchers import executable


@pytest.fixture
def fake(fake_cuda):
    """The variables of a rank whose tensors are on the fake's device."""
    return {"TEST_DEVICE": "fake", "HORO_CUDA_LIBRARY": str(fake_cuda)}


@pytest.fixture
def fake_nccl(fake):
    """The same, by NCCL: an error where it is not used."""
    return fake | {"HORO_NCCL_LIBRARY": fake["HORO_CUDA_LIBRARY"], "HORO_GPU_BACKEND": "nccl"}


# A sample of tools/gpu_proof suite: the programs whose ways differ most between devices and the host.
BY_HOST = [("collectives_torch", 3), ("state", 3), ("layouts", 3)]
BY_NCCL = [
    ("optimizer", 2),
    pytest.param("values", 3, marks=pytest.mark.long),
    ("sync_batch_norm", 3),
    ("optimizer_more", 3),
    ("sets", 4),
]


@pytest.mark.parametrize(("program", "size"), BY_HOST)
def test_a_program_of_the_cpu_has_the_same_results_on_a_device(run_program, fake, program, size):
    run_program(program, size, env=fake)


def test_divided_steps_have_the_bits_of_plain_horo_on_a_device(run_program, fake):
    run_program("zero_bits", 2, env=fake, arguments=("2", "0"))


@pytest.mark.parametrize(("program", "size"), BY_NCCL)
def test_a_program_of_the_cpu_has_the_same_results_by_nccl(run_program, fake_nccl, program, size):
    run_program(program, size, env=fake_nccl)


def test_device_tensors_have_the_bits_of_the_cpu_and_errors_by_name(run_program, fake):
    run_program("on_devices", 2, env=fake)


def test_tensors_that_nccl_reduces_have_the_bits_of_the_cpu(run_program, fake_nccl):
    run_program("on_devices", 2, env=fake_nccl)


def test_kernels_land_in_the_bars_of_their_steps(run_program, fake_nccl):
    run_program("steps_device", 2, env=fake_nccl)
    output, _ = run(command(3, "steps_device", deadline=TORCH_DEADLINE_S), env=fake_nccl)
    assert "AssertionError" not in output  # of a rank, without which the job goes on


def test_works_of_torch_distributed_have_the_values_without_a_wait_of_the_host(run_program, fake_nccl):
    run_program("on_devices_distributed", 3, env=fake_nccl)


@pytest.mark.long
def test_the_audit_compares_tensors_on_a_device_and_no_step_waits(run_program, fake):
    run_program("audit_devices", 2, env=fake)


def test_the_audit_compares_tensors_that_nccl_reduces(run_program, fake_nccl):
    run_program("audit_devices", 2, env=fake_nccl, arguments=["ranks"])


def test_an_elastic_job_goes_on_without_lost_ranks_on_a_device(fake, fake_nccl):
    for env in (fake, fake_nccl):
        output, _ = run(command(4, "elastic_training", deadline=TORCH_DEADLINE_S), env=env)
        check_steps(lines_of(output))
        output, _ = run(command(2, "elastic_raises", deadline=TORCH_DEADLINE_S), env=env)
        assert sorted(lines_of(output)) == CAUGHT


def test_the_plug_in_itself_runs_over_a_fake_driver(root, fake_cuda):
    built = fake_cuda.parent
    words = [executable("horo"), "run", "-n", "2", sys.executable, str(root / "tests/gpu/bits.py")]
    env = {"TEST_DEVICE": "fake", "LD_LIBRARY_PATH": str(built / "driver")}
    output, _ = run(words, env=env)
    assert json.loads(output[output.index("{") :])["wrong_in_all"] == 0, output
    _, errors = run(words, code=1, env=env | {"FAKE_DRIVER_VERSION": "10020"})
    assert "the NVIDIA driver is for CUDA 10.2: horo needs CUDA 11.0 or newer" in errors
    _, errors = run(words, code=1, env=env | {"LD_LIBRARY_PATH": str(built / "no_driver")})
    assert "the NVIDIA driver has no cuInit" in errors
