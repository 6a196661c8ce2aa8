"""A selection of torch's own tests of torch.distributed; tools/torch_suite runs all of them."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.mark.long
def test_a_selection_of_torchs_own_tests_passes():
    command = [sys.executable, str(ROOT / "tools/torch_suite"), "--selection", "--size", "2"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
