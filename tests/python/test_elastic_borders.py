"""Ranks die while they synchronise the states of scripts for Horovod, and others join."""

import pathlib
import re

import ranks
from test_elastic import TORCH_DEADLINE_S, run
from test_launchers import executable

SCRIPTS = pathlib.Path(__file__).resolve().parent / "elastic_scripts"


def check(program, *words):
    run_words = [executable("horo"), "run", "-n", "3", "--min-np", "1", "--timeout", str(TORCH_DEADLINE_S)]
    output, errors = run([*run_words, ranks.start.python(), str(program), *words])
    ends = re.findall(r"^\[\d\] end (.*)$", output, re.MULTILINE)
    assert len(ends) == 3 and len(set(ends)) == 1 and output.count(" dies ") == len(words) - 1, output + errors


def test_a_rank_that_joins_has_the_state_also_when_a_reset_callback_commits_and_a_rank_dies_in_it():
    check(SCRIPTS / "killed_in_sync.py", "by_hand", "1:sync:0:3:before", "2:reset:1:1:before")


def test_a_state_whose_sync_saves_has_no_parts_of_two_ranks_when_the_first_one_dies_in_between():
    check(SCRIPTS / "killed_in_sync.py", "by_hand", "0:sync:0:8:after")
