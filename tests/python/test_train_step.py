"""A short part of bench/train_step."""

import json
import pathlib
import subprocess
import sys

import ranks

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from training import figures  # noqa: E402

REDUCED = {"ddp", "ddp-view", "horo"}


def test_train_step_times_all_contestants_and_finds_them_right(root, tmp_path):
    command = [*ranks.start.tool(), root / "bench/train_step", "--ranks", "2", "--models", "tensors1000"]
    sizes = [
        "--tensors",
        "40",
        "--rounds",
        "2",
        "--turn-ms",
        "20",
        "--patience",
        "0.2",
        "--json",
        tmp_path / "result.json",
    ]
    done = subprocess.run([*command, *sizes], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "result.json").read_text())
    rows = {row["contestant"]: row for row in written["rows"]}
    assert written["wrong"] == [] and written["machine"]["transport"] == "auto"
    assert rows.keys() >= REDUCED | {"none", "ddp-no-sync"}
    for name, row in rows.items():
        assert (row["ranks"], row["tensors"], row["bytes"]) == (2, 40, 40 * 4096 * 4)
        assert row["rounds"] == len(row["round_step_ms"]) == len(row["quiet"]) == 2
        assert row["step_ms"] > 0 and row["samples_per_s"] > 0 and row["samples_to_ddp"] > 0
        assert len(set(row["sha256"])) == (1 if name in REDUCED | {"horo-view"} else 2)
        assert name in done.stdout


def test_figures_are_medians_of_ratios_within_a_round():
    turns = {"none": [1.0, 2.0, 1.0], "ddp": [2.0, 4.0, 5.0], "horo": [1.5, 2.5, 3.0]}
    made = {"model": "gpt2", "ranks": 2, "threads": 1, "tensors": 1, "bytes": 4, "steps": 10, "quiet": [True] * 3}
    field = {name: {"turn_s": turn, "loss": [2, 1], "sha256": ["a", "a"]} for name, turn in turns.items()}
    row = figures.rows_of(made | {"samples": 4, "contestants": field})[2]
    assert (row["contestant"], row["step_ms"], row["samples_per_s"]) == ("horo", 250, 16)
    assert (row["exposed_ms"], row["exposed_to_ddp"], row["samples_to_ddp"]) == (50, 0.5, 1.6)
    assert row["exposed_to_ddp_view"] is row["samples_to_ddp_view"] is None


def test_different_ranks_and_models_that_learn_nothing_or_something_else_are_found():
    right = {"loss": [2, 1], "sha256": ["a", "a"], "moved": 1.0, "from_ddp": 0.0}
    for mistake, said in (
        ({"sha256": ["a", "b"]}, "ranks end with different parameters: a, b"),
        ({"loss": [1, 1]}, "the loss was 1 at first and 1 in the end"),
        ({"from_ddp": 0.02}, "its parameters are 0.02 from ddp's"),
    ):
        result = {"compared_steps": 4, "contestants": {"ddp": right, "horo": right | mistake}}
        (found,) = figures.check(result)
        assert found.startswith("horo: ") and said in found
    assert list(figures.check({"compared_steps": 4, "contestants": {"ddp": right, "horo": right}})) == []


def test_the_steps_of_divided_optimizers_are_timed_and_have_the_bits_of_plain_horo(root, tmp_path):
    what = ["--ranks", "2", "--model", "tensors1000", "--tensors", "40", "--contestants", "plain,stage1,zro-horo"]
    short = ["--rounds", "2", "--turn-ms", "5", "--wait", "0", "--json", tmp_path / "result.json"]
    done = subprocess.run(
        [*ranks.start.tool(), root / "bench/zero", *what, *short], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "result.json").read_text())
    (result,) = written["results"]
    field = result["contestants"]
    assert written["wrong"] == [] and list(field) == ["plain", "stage1", "zro-horo"]
    assert field["stage1"]["sha256"] == field["plain"]["sha256"]
    assert field["stage1"]["held"] < 0.8 * field["plain"]["held"]
    assert all(len(one["seconds"]) == 2 for one in field.values()) and "stage1 / plain" in done.stdout
