"""Where the time of steps goes: docs/scaling.md."""

import json
import subprocess
import sys

import pytest
import ranks
from test_launchers import environment, executable


def test_delays_land_in_their_bars_and_the_bars_add_up(run_program):
    run_program("steps", 2)


def test_each_batch_that_a_backward_uses_counts_once(run_program):
    run_program("batches", 1)


@pytest.mark.parametrize("mode", ["on", "unmarked", "off"])
def test_a_script_of_numpy_has_its_waits_and_no_more(run_program, tmp_path, mode):
    settings = {"unmarked": {"HORO_MARKS": "off"}, "off": {"HORO_ACCOUNTING": "off"}}.get(mode, {})
    run_program("steps_numpy", 2, env={"HORO_STEPS": str(tmp_path / "steps.jsonl"), **settings}, arguments=[mode])


def test_the_bars_of_an_elastic_job_add_up_across_its_epochs(root, tmp_path):
    program = str(root / "tests/python/programs/elastic_training.py")
    command = [executable("horo"), "run", "-n", "4", "--min-np", "1", sys.executable, program]
    (tmp_path / "drawn").mkdir()
    env = {"HORO_STEPS": str(tmp_path / "steps.jsonl"), "HORO_TIMELINE": str(tmp_path / "drawn/trace.json")}
    subprocess.run(command, env=environment(env), timeout=120, capture_output=True)
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) == 4
    drawn = [path.read_text() for path in (tmp_path / "drawn").iterdir()]
    assert any('"name":"epoch 1: rank ' in text and '"membership_us":' in text for text in drawn)
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
    short = ["--rounds", "2", "--turns", "1", "--steps", "20", "--json", result]
    command = [*ranks.start.tool(), root / "bench/steps", *short]
    done = subprocess.run(command, env=environment({}), timeout=120, capture_output=True, text=True)
    assert done.returncode == 0 and "overhead" in done.stdout, done.stderr
    rounds = json.loads(result.read_text())["rounds"]
    turns = {setting: [turn for one in rounds for turn in one[setting]] for setting in ("on", "off")}
    assert {turn["messages"] for turn in turns["on"]} == {turn["messages"] for turn in turns["off"]}, rounds
    assert min(turn["alone_ns"] for turn in turns["on"]) <= 30_000, rounds  # twice the bar, for slow machines


LATE = """
import time, torch, horo.torch as horo
horo.init()
model = torch.nn.Linear(8, 1)
optimizer = horo.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
horo.broadcast_parameters(model.state_dict(), root_rank=0)
loader = torch.utils.data.DataLoader(torch.randn(240, 8), batch_size=4)
for x in loader:
    optimizer.zero_grad()
    time.sleep(0.004 + 0.016 * (horo.rank() == 1))
    model(x).square().mean().backward()
    optimizer.step()
horo.barrier()
if horo.rank() == 0:
    print("look", flush=True)
    input()
horo.barrier()
"""


def test_the_summary_and_the_status_of_a_static_job_name_the_late_rank(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(LATE)
    command = [executable("horo"), "run", "-n", "2", "--summary", sys.executable, str(script)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment({}), **pipes) as job:
        while "look" not in (line := job.stdout.readline()):
            assert line, job.stderr.read()
        asked = [executable("horo"), "status", "--json", str(job.pid)]
        told = json.loads(subprocess.run(asked, env=environment({}), capture_output=True, text=True, timeout=30).stdout)
        _, errors = job.communicate("\n", timeout=60)
    assert job.returncode == 0, errors
    status = told["jobs"][0]
    assert "rank 1: it is late in nearly all steps" in status["late"], status
    for member in status["members"]:
        steps = member["steps"]
        assert steps["steps"] >= 59 and steps["samples_per_s"] > 10, steps
        assert abs(sum(ns or 0 for ns in steps["bars_ns"].values()) - steps["step_ns"]) <= len(steps["bars_ns"]), steps
    assert status["members"][0]["steps"]["bars_ns"]["skew"] >= 8_000_000, status
    assert "horo run: 2 ranks, " in errors and "samples/s" in errors, errors
    assert "for rank 1: it is late in nearly all steps" in errors and "its forward takes" in errors, errors
