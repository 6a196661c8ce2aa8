"""Ranks die while they synchronise the states of scripts for Horovod, and others join; calls of all kinds before and
after such changes have the results of numpy, on the ranks that are left and on those that join."""

import json
import pathlib
import subprocess

import pytest
import ranks
from soaks import borders
from test_elastic import PROGRAMS, TORCH_DEADLINE_S, run
from test_launchers import executable

SCRIPTS = pathlib.Path(__file__).resolve().parent / "elastic_scripts"


def check(program, *words):
    run_words = [executable("horo"), "run", "-n", "3", "--min-np", "1", "--timeout", str(TORCH_DEADLINE_S)]
    output, errors = run([*run_words, ranks.start.python(), str(program), *words])
    assert borders.faults(0, output, len(words) - 1) == [], output + errors


def test_a_rank_that_joins_has_the_state_also_when_a_reset_callback_commits_and_a_rank_dies_in_it():
    check(SCRIPTS / "killed_in_sync.py", "by_hand", "1:sync:0:3:before", "2:reset:1:1:before")


def test_a_state_whose_sync_saves_has_no_parts_of_two_ranks_when_the_first_one_dies_in_between():
    check(SCRIPTS / "killed_in_sync.py", "by_hand", "0:sync:0:8:after")


def test_sets_are_made_anew_at_the_top_of_the_function_when_ranks_have_joined():
    deaths = ("1:sync:0:1:before", "0:sync:1:1:after", "2:sync:2:1:before")
    check(SCRIPTS / "killed_in_sync.py", "sets_at_top", *deaths)


@pytest.mark.parametrize("style, deaths", [("horovod", "1:1:reductions 0:5:roots"), ("state", "2:0:reductions")])
def test_calls_of_all_kinds_have_the_results_of_the_ranks_there_are(style, deaths):
    check(PROGRAMS / "elastic_every_call.py", style, *deaths.split())


def test_a_state_has_one_origin_and_one_age_wherever_ranks_die_in_sync(root):
    options = ["--json", "--horo", executable("horo"), "--runs", "2", "0", "--scripts", "counting"]
    words = [*ranks.start.tool(), str(root / "tools/soak"), "borders", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    assert summary["wrong"] == [] and summary["deaths"] == 6
