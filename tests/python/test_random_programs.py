"""Random training programs on 3 ranks: random_programs.py --seeds 500 runs more of them."""

import pathlib
import sys

import ranks

TESTS = pathlib.Path(__file__).resolve().parent


def test_random_programs_are_as_in_one_process():
    command = [sys.executable, str(TESTS / "random_programs.py"), "--of-this-rank", "--seeds", "25"]
    ranks.check_ranks(command, 3, deadline_s=600)
