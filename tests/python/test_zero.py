"""horo.zero on several ranks of this host."""

import collections
import os

import pytest

STEPS = "50" if os.environ.get("LARGE_TESTS") else "8"


@pytest.mark.parametrize("size, bucket", [(1, "1048576"), (2, "0"), (3, "2000"), (4, "1048576")])
def test_divided_steps_have_the_bits_of_plain_horo(run_program, size, bucket):
    run_program("zero_bits", size, arguments=(STEPS, bucket))


@pytest.mark.parametrize("size", [1, 3])
def test_what_scripts_do_has_the_bits_of_plain_horo(run_program, size):
    run_program("zero_habits", size)


@pytest.mark.parametrize("size", [1, 3])
def test_types_memory_copies_and_sets_are_those_of_plain_horo(run_program, size):
    run_program("zero_types", size)


def test_what_any_number_of_ranks_has_saved_is_loaded_by_any_other(run_program, tmp_path):
    found = collections.defaultdict(list)
    for size in (4, 1, 3, 2):
        saved = [path.stem for path in tmp_path.glob("*.pt")]
        (output,) = [rank.output for rank in run_program("zero_checkpoints", size, arguments=(tmp_path, *saved))][:1]
        for _, source, _, *digests in (line.split() for line in output.splitlines()):
            found[size, source].append(tuple(digests))
    for (size, source), rows in found.items():  # plain and divided, state_dict() and checkpoint, into both
        assert len(rows) == (2 if source == "itself" else 8) and len(set(rows)) == 1, (size, source, rows)
        assert source == "itself" or rows[0][0] == found[int(source), "itself"][0][0], (size, source)


@pytest.mark.parametrize("size", [2, 3])
def test_fully_sharded_models_have_the_bits_of_plain_horo(run_program, size):
    run_program("zero_sharded", size)
