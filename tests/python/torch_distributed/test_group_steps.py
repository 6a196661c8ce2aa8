"""Where the time of steps goes over torch.distributed."""

import json


def test_a_late_rank_is_the_skew_of_the_other_and_a_timeline_has_the_same_steps(launch, tmp_path):
    path = tmp_path / "trace.json"
    launch("group_steps", 2, env={"HORO_TIMELINE": str(path)})
    events = json.loads(path.read_text())
    steps = [event for event in events if event["name"].startswith("step ")]
    assert len(steps) >= 26, steps  # of DDP and of FSDP2
    for step in steps:
        sums = step["args"]
        bars = sum(us for name, us in sums.items() if name not in ("wait_us", "compute_us"))
        assert abs(bars - step["dur"]) < 0.1 and abs(sums["wait_us"] + sums["compute_us"] - step["dur"]) < 0.1, step
    assert sum(step["args"].get("skew_us", 0) > 10_000 for step in steps) >= 20, steps
    assert not any(event["name"] in ("wait", "compute") for event in events if event.get("ts", 0) > steps[0]["ts"])
