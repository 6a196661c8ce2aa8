"""tools/gpu_check on the fake of CUDA: its parts run, and what is wrong is told."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def check(tmp_path, fake_cuda):
    """check(*options): runs tools/gpu_check on the fake; returns what ran and its rows."""

    def run(*options):
        out = tmp_path / "rows.jsonl"
        command = [sys.executable, ROOT / "tools/gpu_check", "--installed", "--fake", fake_cuda, "--out", out, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        return done, [json.loads(line) for line in out.read_text().splitlines()]

    return run


@pytest.mark.long
def test_its_parts_are_right_on_the_fake(check):
    done, rows = check("--only", "kernels,bits of two,training,elastic,audit")
    assert done.returncode == 0, done.stdout + done.stderr
    by_host = ["bits of two ranks", "training", "elastic", "audit"]
    by_nccl = [f"{part} by NCCL" for part in by_host]
    assert {row["part"] for row in rows} == {"machine", "kernels", *by_nccl, *by_host}
    assert rows[1]["checked"] > 2_000 and rows[1]["gb_per_s"]["sum of 2 float32"] > 0
    assert rows[2]["checked"] > 500 and "cuda:0 is fake device 0" in rows[0]["horo"][0]


def test_an_error_of_the_device_is_a_wrong_part(check, monkeypatch):
    monkeypatch.setenv("HORO_FAKE_CUDA_FAIL", "copy_to_device")
    done, rows = check("--only", "speed of two")
    assert done.returncode == 1 and not rows[1]["ok"], done.stdout
    assert "cuda:0: copying to the device" in rows[1]["stderr"]
