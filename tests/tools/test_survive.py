"""The judge of tools/soak survive. tests/horo/CMakeLists.txt has a short run of the soak itself."""

import argparse
import importlib
import sys

import pytest
from launching import ROOT


@pytest.fixture(scope="module")
def soaks():
    sys.path.insert(0, str(ROOT / "tools"))
    yield {name: importlib.import_module(f"soaks.{name}") for name in ("survive", "survivors", "zombies")}
    sys.path.remove(str(ROOT / "tools"))


OPTIONS = argparse.Namespace(limit=10, step_limit=5, steps=12, seed=0, per_host=None)


def line(rank, results=9, hash="ab", members="7x4,3x5,", longest=20, in_set=None):
    part = f" set results 3 hash cd members {in_set}" if in_set else ""
    return (
        f"[{rank}] survivor {rank} results {results} hash {hash} members {members} ends 01{part} longest {longest} ms\n"
    )


def faults(soaks, text, code=0, seconds=1.0):
    survivors = soaks["survivors"]
    job = survivors.Job("lane.data", 3, "plain", 12, 0, "2:lane.data:5")
    return survivors.faults(job, survivors.Outcome(code, text, seconds), OPTIONS)


DIED = "[2] fired 2:lane.data:5\n"


def test_a_good_job_has_no_faults(soaks):
    assert faults(soaks, DIED + line(0) + line(1)) == []
    assert faults(soaks, DIED + line(0, in_set="5x1,1x2,") + line(1)) == []
    assert faults(soaks, line(0, members="7x9,") + line(1, members="7x9,") + line(2, members="7x9,")) == []
    assert faults(soaks, line(2, members="7x9,") + DIED + line(0, members="7x9,") + line(1, members="7x9,"), 137) == []


@pytest.mark.parametrize(
    "text, code, seconds, fault",
    [
        (DIED + line(0) + line(1), 0, 10.1, "the job took 10.1 s"),
        (DIED + line(0) + line(1, longest=5001), 0, 1, "a step took 5001 ms"),
        (DIED + line(0) + line(1, hash="cd"), 0, 1, "results differ between ranks"),
        (DIED + line(0) + line(1, results=8), 0, 1, "results differ between ranks"),
        (DIED + line(0) + line(1, members="7x5,3x4,"), 0, 1, "results differ between ranks"),
        (DIED + line(0, members="3x5,7x4,") + line(1, members="3x5,7x4,"), 0, 1, "members 3x5,7x4, do not only shrink"),
        (line(0, members="3x5,7x4,"), 0, 1, "members 3x5,7x4, do not only shrink"),
        (DIED + line(0, members="7x5,2x4,") + line(1, members="7x5,2x4,"), 0, 1, "lack a survivor"),
        (DIED + line(0, in_set="3x3,") + line(1, in_set="3x2,"), 0, 1, "in the set differ"),
        (DIED + line(0, in_set="5x3,") + line(1, in_set="5x3,"), 0, 1, "in the set: members 5x3, lack a survivor"),
        (DIED + line(0) + line(1), 1, 1, "exit code 1"),
        (DIED + line(0), 0, 1, "ranks [1] have neither died nor printed results"),
        (line(0) + line(1), 0, 1, "ranks [2] have neither died nor printed results"),
    ],
)
def test_each_fault_is_found(soaks, text, code, seconds, fault):
    assert any(fault in found for found in faults(soaks, text, code, seconds))


def test_the_jobs_of_a_seed_reach_every_fail_point(soaks):
    survive = soaks["survive"]
    points = survive.fail_points()
    assert {"lane.data", "engine.freeze", "start.connected", "shutdown.left"} <= set(points)
    jobs = [survive.at_point(number, points, OPTIONS) for number in range(60)]
    assert {job.what for job in jobs} == set(points) and jobs[7] == survive.at_point(7, points, OPTIONS)
    assert all(f":{job.what}:" in job.kills for job in jobs)
    assert {survive.at_random(number, OPTIONS).what for number in range(20)} == {
        "random: one",
        "random: at once",
        "random: in an install",
    }


def test_a_zombie_ends_with_the_reason_of_its_eviction(soaks, monkeypatch):
    survivors, zombies = soaks["survivors"], soaks["zombies"]
    job = survivors.Job("zombie", 3, "plain", 12, 0, "", "2:lane.data:5")
    said = "[2] elastic_rank: rank 2 was evicted: it was stopped for 300 ms, and so on\n"
    texts = {DIED + said + line(0) + line(1): 0, DIED + line(0) + line(1): 1, DIED + said + line(2): 1}
    for text, count in texts.items():

        def run(job, options, on_line, text=text):
            on_line("horo run: rank 2 is evicted: it was stopped for 300 ms\n")
            return survivors.Outcome(0, text, 1.0)

        monkeypatch.setattr(survivors, "run", run)
        assert len(zombies.run(job, OPTIONS)[1]) == count
