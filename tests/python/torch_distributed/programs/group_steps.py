"""Where the time of steps goes with DistributedDataParallel and FSDP2: a late rank is the skew of the other."""

import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import horo

torch.set_num_threads(1)
STEPS, LATE_S = 14, 0.03


def train(model, optimizer, late_s):
    """The steps, and the median of what this rank has slept in their forward, in nanoseconds."""
    slept, steps = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        begin = time.monotonic_ns()
        time.sleep(late_s)
        slept.append(time.monotonic_ns() - begin)
        model(torch.ones(4, 64)).square().mean().backward()
        if step > 0:
            steps.append(horo.last_step())
        optimizer.step()
    return steps, statistics.median(slept)


def run_queues(steps):
    """Of each step. The kernel is asked every 10 ms at most: a figure is that of all steps since the last one, so it
    bounds that of each. Steps behind the last figure are bounded by none, and have the last one."""
    found, known = [], next((one["run_queue"] for one in reversed(steps) if one["run_queue"] is not None), 0)
    for one in reversed(steps):
        known = known if one["run_queue"] is None else one["run_queue"]
        found.append(known)
    return found[::-1]


def check(wrap, is_estimated):
    torch.manual_seed(3)
    model = wrap(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps, slept = train(model, optimizer, LATE_S if dist.get_rank() == 1 else 0.001)
    for one, after in zip(steps, steps[1:]):
        assert one["begin"] + one["time"] == after["begin"], (one, after)
    for one in steps:
        assert sum(ns or 0 for ns in one["bars"].values()) == one["time"], one
        assert one["bars"]["optimizer"] > 0 and one["bars"]["backward"] > 0 and one["bars"]["input"] is None, one
        if is_estimated:
            assert one["notes"] == ["estimated_wait"], one
    both = [torch.zeros(1, dtype=torch.float64) for _ in range(2)]
    dist.all_gather(both, torch.tensor([slept], dtype=torch.float64))
    bars = {name: statistics.median(one["bars"][name] or 0 for one in steps[3:]) for name in steps[0]["bars"]}
    queued = statistics.median(run_queues(steps)[3:])
    late_ns = (both[1] - both[0]).item()
    if dist.get_rank() == 0:
        assert abs(bars["skew"] - late_ns) <= 0.25 * late_ns + queued, (bars, late_ns, queued)
        assert statistics.median(one["late"].get(1, 0) for one in steps[3:]) >= 0.9 * bars["skew"], steps
    else:
        assert bars["skew"] <= 0.25 * late_ns + queued, (bars, queued)
        assert bars["forward"] >= 0.9 * slept, bars


def sharded(model):
    fully_shard(model[0])
    fully_shard(model)
    return model


dist.init_process_group("horo")
check(DistributedDataParallel, True)
check(sharded, False)
dist.destroy_process_group()
