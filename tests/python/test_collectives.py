"""Every collective on real ranks, from NumPy and from torch; process sets and join; the example with uneven data."""

import re
import sys

import ranks


def test_every_collective_agrees_with_numpy(run_program):
    run_program("collectives_numpy", 4)


def test_process_sets_and_join(run_program):
    run_program("sets", 4)


def test_rounds_that_differ_or_are_given_up_fail_with_one_text_on_all_ranks(run_program):
    run_program("rounds", 3)


def test_every_collective_of_torch(run_program):
    run_program("collectives_torch", 3)


def test_the_optimizer_with_groups_codecs_sparse_gradients_and_sets(run_program):
    run_program("optimizer_more", 3)


def test_training_with_uneven_data_has_the_result_of_one_process(root):
    ended = ranks.check_ranks([sys.executable, str(root / "examples/uneven.py")], 4)
    said = re.search(r"relative difference to one process (\S+)", ended[0].output)
    assert float(said[1]) <= 1e-10
