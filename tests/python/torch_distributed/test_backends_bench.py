"""A short part of bench/torch_distributed."""

import json
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench"))

from training import backends  # noqa: E402

SHORT = ["--rounds", "2", "--turn-ms", "5", "--wait", "0"]


def test_both_backends_are_timed_and_give_right_results(root, tmp_path):
    what = ["--ranks", "2", "--models", "tensors1000", "--tensors", "20", "--sizes", "8,4K"]
    command = [sys.executable, root / "bench/torch_distributed", *what, *SHORT, "--json", tmp_path / "result.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "result.json").read_text())
    rows = {(row["what"], row["bytes"]): row for row in written["rows"]}
    sized = [name for name in backends.COLLECTIVES if name != "barrier"]
    steps = {(f"tensors1000 {kind}", 20 * 4096 * 4) for kind in backends.STEPS}
    assert rows.keys() == steps | {("barrier", 0)} | {(name, size) for name in sized for size in (8, 4096)}
    for row in rows.values():
        assert row["rounds"] == len(row["gloo_round_us"]) == len(row["horo_round_us"]) == 2
        assert 0 < row["least"] <= row["ratio"] <= row["most"]
    assert all(rows[step]["horo_samples_per_s"] > 0 for step in steps)
    assert written["wrong"] == []
    pytest.importorskip("matplotlib")
    plot = tmp_path / "out.png"
    subprocess.run([sys.executable, root / "bench/plot", "--backends", tmp_path / "result.json", plot], check=True)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_figures_are_medians_of_ratios_within_a_round_and_unequal_results_are_found():
    seconds = {"gloo": [2e-6, 6e-6, 1e-6], "horo": [1e-6, 2e-6, 4e-6]}
    made = {"what": "gpt2 ddp", "bytes": 4, "ranks": 2, "quiet": [True, False, True], "samples": 2, "seconds": seconds}
    row = backends.row_of(made)
    assert (row["gloo_us"], row["horo_us"], row["ratio"], row["least"], row["most"]) == (2, 2, 2, 0.25, 3)
    assert (row["horo_samples_per_s"], row["quiet"]) == (1e6, 2)
    right = {"what": "x", "loss": {"gloo": 1.0, "horo": 1.001}, "sha256": {"horo": ["a", "a"]}}
    assert list(backends.check(right, 2)) == []
    wrong = {"what": "x", "loss": {"gloo": 1.0, "horo": float("nan")}, "sha256": {"horo": ["a", "b"]}}
    assert len(list(backends.check(wrong, 2))) == 2
