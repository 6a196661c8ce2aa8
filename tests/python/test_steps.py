"""Where the time of steps goes: docs/scaling.md."""

import json
import subprocess
import sys

import pytest
from test_launchers import environment, executable


def test_delays_land_in_their_bars_and_the_bars_add_up(run_program):
    run_program("steps", 2)


@pytest.mark.parametrize("mode", ["on", "unmarked", "off"])
def test_a_script_of_numpy_has_its_waits_and_no_more(run_program, tmp_path, mode):
    settings = {"unmarked": {"HORO_MARKS": "off"}, "off": {"HORO_ACCOUNTING": "off"}}.get(mode, {})
    run_program("steps_numpy", 2, env={"HORO_STEPS": str(tmp_path / "steps.jsonl"), **settings}, arguments=[mode])


def test_the_bars_of_an_elastic_job_add_up_across_its_epochs(root, tmp_path):
    program = str(root / "tests/python/programs/elastic_training.py")
    command = [executable("horo"), "run", "-n", "4", "--min-np", "1", sys.executable, program]
    env = {"HORO_STEPS": str(tmp_path / "steps.jsonl")}
    subprocess.run(command, env=environment(env), timeout=120, capture_output=True)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 4
    epochs = set()
    for file in files:
        steps = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
        for one, after in zip(steps, steps[1:]):
            assert one["begin"] + one["time"] == after["begin"], (one, after)
        for one in steps:
            assert sum(ns or 0 for ns in one["bars"].values()) == one["time"], one
            epochs.add(one["epoch"])
            if one["bars"]["membership"]:
                epochs.add("changed")
    assert {0, 1, "changed"} <= epochs, epochs


def test_the_accounting_sends_no_message_and_takes_little_of_the_processor(root, tmp_path):
    result = tmp_path / "result.json"
    command = [sys.executable, root / "bench/steps", "--rounds", "2", "--steps", "20", "--json", result]
    done = subprocess.run(command, env=environment({}), timeout=120, capture_output=True, text=True)
    assert done.returncode == 0 and "overhead" in done.stdout, done.stderr
    rounds = json.loads(result.read_text())["rounds"]
    assert all(one["on"]["messages"] == one["off"]["messages"] for one in rounds), rounds
    assert min(one["on"]["alone_ns"] for one in rounds) <= 30_000, rounds  # twice the bar, for slow machines
