"""tools/soak survive --flat and --busy: their judges, and short runs of them."""

import argparse
import importlib
import json
import subprocess
import sys

import pytest
from launching import HORO, ROOT

RANK = ROOT / "build/release/tests/horo/elastic_rank"
needs_rank = pytest.mark.skipif(not RANK.exists(), reason="no build tree has elastic_rank: tools/test release")


@pytest.fixture(scope="module")
def soaks():
    sys.path.insert(0, str(ROOT / "tools"))
    names = ("survive_flat", "survive_busy", "survivors")
    yield {name: importlib.import_module(f"soaks.{name}") for name in names}
    sys.path.remove(str(ROOT / "tools"))


def run(*words):
    command = [sys.executable, ROOT / "tools/soak", "survive", "--json", *words, "--horo", HORO, "--rank", RANK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def readings(flat, leak):
    """Of jobs in which ranks have 10 descriptors per member, and leak so many per epoch."""
    for members in range(1, 8):
        for epoch in range(1, 9 - members):
            values = [20 + 10 * members + leak * epoch, 100, 5, 9000]
            yield from (flat.Reading(what, ("plain", members), epoch, values) for what in ("rank", "guard"))


def test_a_leak_per_epoch_is_found_although_later_epochs_have_fewer_members(soaks):
    flat = soaks["survive_flat"]
    assert list(flat.faults(list(readings(flat, 0)))) == []
    found = list(flat.faults(list(readings(flat, 1))))
    assert found == [f"{what}: descriptors grow by 1.00 per epoch; the limit is 0.05" for what in ("rank", "guard")]


def test_readings_of_one_epoch_compare_nothing(soaks):
    flat = soaks["survive_flat"]
    some = [one for one in readings(flat, 1) if one.epoch == 8 - one.group[1]]
    assert flat.compared(some) == [] and len(flat.compared(list(readings(flat, 1)))) == 6


@needs_rank
def test_ranks_hold_no_more_after_kills():
    summary = run("--flat", "6", "--seed", "3")
    assert summary["kills"] >= 6 and summary["readings"] >= 4 and len(summary["growth_per_epoch"]) == 8


def test_an_event_in_a_busy_job_is_found(soaks):
    busy, survivors = soaks["survive_busy"], soaks["survivors"]
    options = argparse.Namespace(limit=1, step_limit=1)
    job = survivors.Job("busy", 2, "mixed", 5, 0, "")
    line = "[{0}] survivor {0} results 9 hash ab members 3x9, ends 01 longest 7000 ms\n"
    good = line.format(0) + line.format(1) + "horo run: rank 0 left\n"
    assert busy.faults(job, survivors.Outcome(0, good, 20.0), options) == []
    text = "horo run: rank 1 is evicted: it was stopped for 10 s\n"
    assert busy.faults(job, survivors.Outcome(0, text + good, 20.0), options) == [f"a rank was given up: {text[:-1]}"]


@needs_rank
def test_busy_ranks_are_not_given_up():
    summary = run("--busy", "1", "--steps", "2")
    assert summary["jobs"] >= 1 and summary["results"] > 0 and summary["commands_beside"] >= 1
