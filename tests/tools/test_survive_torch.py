"""tools/soak survive --torch: its jobs, and a short run of it."""

import argparse
import importlib
import json
import subprocess
import sys

import pytest
import ranks
from launching import HORO, ROOT

LIBRARY = ROOT / "build/release/tests/horo/libhoro_kills.so"
OPTIONS = argparse.Namespace(
    steps=12, seed=0, library="libhoro_kills.so", horo="horo", limit=10, step_limit=5, per_host=None
)


@pytest.fixture(scope="module")
def soaks():
    sys.path.insert(0, str(ROOT / "tools"))
    yield {name: importlib.import_module(f"soaks.{name}") for name in ("survive", "survive_torch", "survivors")}
    sys.path.remove(str(ROOT / "tools"))


def test_each_point_kills_each_rank_of_each_size_at_the_point_and_later(soaks):
    survive, survive_torch = soaks["survive"], soaks["survive_torch"]
    points = survive.fail_points()
    rows = list(survive_torch.rows(points, survive.is_of_change))
    assert len(rows) == 2 * sum(7 if survive.is_of_change(point) else 9 for point in points)
    jobs = [survive_torch.job(number, points, survive.is_of_change, OPTIONS) for number in range(len(rows))]
    found = [(job.what, job.size, kill) for job in jobs for kill in job.kills.split(",")[-1:]]
    ends = {(point, size, int(kill.partition(":")[0]), "+" in kill) for point, size, kill in found}
    assert ends == {tuple(row) for row in rows} and {job.program for job in jobs} == set(survive_torch.WAYS)
    assert all(len(job.kills.split(",")) == 1 + survive.is_of_change(job.what) for job in jobs)
    assert jobs[5] == survive_torch.job(5, points, survive.is_of_change, OPTIONS)


def test_the_ways_are_those_of_the_worker(soaks, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "tools/soaks"))
    assert list(importlib.import_module("torch_ways").WAYS) == soaks["survive_torch"].WAYS


@pytest.mark.skipif(not LIBRARY.exists(), reason="no build tree has libhoro_kills.so: tools/test release")
def test_torch_models_survive_kills():
    pytest.importorskip("torch")
    own = ["--torch", "4", "--seed", "1", "--steps", "6", "--limit", "60", "--step-limit", "60", "--horo", HORO]
    command = [*ranks.start.tool(), ROOT / "tools/soak", "survive", "--json", *own, "--library", LIBRARY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    assert summary["jobs"] == 4 and sum(row["fired"] for row in summary["table"].values()) >= 2
