"""Ranks that die inside what torch builds on a process group."""

import json
import os
import pathlib
import subprocess

import ranks

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def test_a_killed_rank_is_named_on_every_other_rank():
    """100 deaths of each kind: tools/soak deaths."""
    command = [*ranks.start.tool(), str(ROOT / "tools/soak"), "deaths", "--json", "--times", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout)["table"]
    assert {row["kind"]: row["deaths"] for row in rows} == {kind: 1 for kind in ("ddp", "fsdp2", "dcp", "wait")}


def test_horo_run_tells_which_rank_an_elastic_job_lost_in_ddp(executable):
    program = str(HERE / "programs/elastic_ddp.py")
    command = [executable, "run", "-n", "3", "--min-np", "1", ranks.start.python(), program]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 137 and "PeerLost: the process group" in ended.stderr, ended.stderr
    assert "has lost rank 1 " in ended.stderr, ended.stderr
    assert ended.stderr.count("end with the first rank that is lost") == 1, ended.stderr  # told at the start
