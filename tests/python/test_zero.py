"""horo.zero on several ranks of this host."""

import pytest


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_divided_steps_have_the_bits_of_plain_horo(run_program, size):
    buckets = ("0", "2000", "1048576") if size == 3 else ("1048576",)
    run_program("zero_bits", size, arguments=("50", *buckets))


@pytest.mark.parametrize("size", [1, 3])
def test_what_scripts_do_has_the_bits_of_plain_horo(run_program, size):
    run_program("zero_habits", size)


@pytest.mark.parametrize("size", [1, 3])
def test_types_memory_copies_and_sets_are_those_of_plain_horo(run_program, size):
    run_program("zero_types", size)
