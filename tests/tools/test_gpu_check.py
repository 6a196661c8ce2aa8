"""tools/gpu_check on the fake of CUDA: its parts run, what is wrong is told, and it ends in time."""

import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import warnings

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NCCL = ["bits of one rank by NCCL", "training by NCCL", "audit by NCCL"]
HOST = ["kernels", "bits of two ranks", "training"]


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
    assert rows[2]["checked"] == 981 and rows[2]["types"] == 17 and "cuda:0 is fake device 0" in rows[0]["horo"][0]


def test_an_error_of_the_device_is_a_wrong_part(check, monkeypatch):
    monkeypatch.setenv("HORO_FAKE_CUDA_FAIL", "copy_to_device")
    done, rows = check("--only", "speed of two")
    assert done.returncode == 1 and not rows[1]["ok"], done.stdout
    assert "cuda:0: copying to the device" in rows[1]["stderr"]


def test_parts_for_which_no_time_is_left_are_told_and_are_not_right(check):
    done, rows = check("--only", "bits of one,elastic", "--within", "4")
    assert done.returncode == 2, done.stdout
    assert [row["ok"] for row in rows] == [True, None, None, None] and rows[0]["part"] == "machine"
    assert all(row["why"] == ["left out: no time"] for row in rows[1:])
    names = "bits of one rank by NCCL, elastic, elastic by NCCL"
    assert f"gpu_check: 4 parts, left out, for lack of time: {names}\n" in done.stdout


@pytest.fixture
def module():
    """tools/gpu_check, imported."""
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(ROOT / "tools/gpu_check"))
    loaded = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(loaded)
    return loaded


def test_a_run_ends_within_its_time_whatever_its_parts_take(module):
    assert module.WITHIN_S <= 480 - 10 and sum(part[3] for part in module.PARTS.values()) > module.WITHIN_S
    now = [100.0]
    budget = module.Budget(module.WITHIN_S, lambda: now[0])
    for name in module.PARTS:
        limit_s = budget.limit_of(name)
        assert limit_s <= module.PARTS[name][3] and (limit_s == 0 or limit_s >= module.LEAST_S)
        now[0] += limit_s  # each takes all that it gets
    assert module.WITHIN_S - module.LEAST_S < now[0] - 100 <= module.WITHIN_S and limit_s == 0


def test_parts_by_nccl_get_little_time_after_one_that_was_late(module):
    budget = module.Budget(1_000, lambda: 0.0)
    for row in ({"part": HOST[0], "is_late": True}, {"part": NCCL[0], "ok": False}):
        budget.saw(row)
    assert budget.limit_of(NCCL[0]) == module.PARTS[NCCL[0]][3], "a part that is wrong may end in time"
    budget.saw({"part": NCCL[0], "ok": False, "is_late": True})
    assert [budget.limit_of(name) for name in NCCL] == [module.AFTER_LATE_S] * 3
    assert [budget.limit_of(name) for name in HOST] == [module.PARTS[name][3] for name in HOST]


def test_a_part_that_does_not_end_is_late(module, tmp_path, monkeypatch):
    """It waits for ever in the place of `horo run`."""
    stuck = tmp_path / "horo"
    stuck.write_text("#!/bin/sh\necho begun >&2\nexec sleep 600\n")
    stuck.chmod(0o755)
    row = module.run_part(NCCL[0], stuck, {"PATH": "/usr/bin:/bin"}, True, 0.5)
    assert row["is_late"] and row["ok"] is False and row["stderr"] == "begun\n"


def test_fewer_comparisons_than_expected_are_wrong(module):
    expected = module.BITS[2]
    assert module.faults_of({"wrong_in_all": 0, "compared": module.COMPARED[2]}, expected) == []
    fewer = {**module.COMPARED[2], "float": [47, 48]}
    assert module.faults_of({"wrong_in_all": 0, "compared": fewer}, expected)


@pytest.fixture
def place(monkeypatch):
    """tests/gpu/place.py, on a GPU that is not there."""
    monkeypatch.delenv("TEST_DEVICE", raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "tests/gpu"))
    monkeypatch.delitem(sys.modules, "place", raising=False)
    yield pytest.importorskip("place")
    sys.modules.pop("place", None)


def test_only_what_waits_for_the_gpu_is_counted(place, monkeypatch):
    """torch tells at the first call that the mode is a prototype that does not detect all synchronizing operations."""
    prototype = "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations"
    modes = []

    def set_mode(mode):
        modes.append(mode)
        if len(modes) == 1:
            warnings.warn(prototype)

    def waits():
        for text in ("called a synchronizing CUDA operation", "another one"):
            warnings.warn(f"{text} (Triggered internally at CUDAFunctions.cpp:148.)")

    monkeypatch.setattr(place.torch.cuda, "set_sync_debug_mode", set_mode)
    monkeypatch.setattr(place.torch.cuda, "set_device", lambda number: None)
    monkeypatch.setattr(place.torch.cuda, "device_count", lambda: 1)
    for name, value in (("init", None), ("local_rank", 0)):
        monkeypatch.setattr(place.hvd, name, lambda value=value: value)
    place.start()
    assert modes == ["warn", "default"]
    assert place.waits_of(lambda: None) == 0 and place.waits_of(waits) == 1
