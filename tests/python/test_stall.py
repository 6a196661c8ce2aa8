"""Tensors that a rank never submits."""

import os
import sys

import ranks


def run(root, program, size, argument, settings):
    command = [sys.executable, str(root / "tests/python/programs" / program), str(argument)]
    return ranks.check_ranks(command, size, deadline_s=360, env=settings)


def test_a_stall_names_the_missing_rank_and_shows_both_sides(root, tmp_path):
    settings = {"HORO_STALL_LIMIT_MS": "3000", "HORO_STALL_WARNING_MS": "500", "HORO_ANSWER_TIMEOUT_MS": "60000"}
    ended = run(root, "stall.py", 3, tmp_path, settings)
    warnings = [line for line in ended[0].output.splitlines() if "warning: tensor 'lonely'" in line]
    assert 2 <= len(warnings) <= 3, ended[0].output  # after 0.5, 1 and 2 s of 3 s
    assert "submitted by ranks 0, 2, but not by rank 1 for" in warnings[0]
    assert "warning: tensor" not in ended[1].output + ended[2].output
    assert "'lonely': submitted by ranks 0, 2, but not by rank 1 within" in ended[1].output


def test_a_slow_rank_is_named_and_only_a_deadlock_fails(run_program):
    settings = {"HORO_DEADLOCK_MS": "1000", "HORO_STALL_WARNING_MS": "500", "HORO_ANSWER_TIMEOUT_MS": "60000"}
    ended = run_program("deadlock", 3, env=settings)
    warnings = [line for line in ended[0].output.splitlines() if "warning: tensor 'slow'" in line]
    assert 2 <= len(warnings) <= 4, ended[0].output  # after 0.5, 1 and 2 s of a little more than 4 s, and maybe 4 s
    for line in warnings:
        assert "submitted by ranks 0, 2, but not by rank 1 for" in line
        assert "Rank 1 is at " in line and "deadlock.py:" in line and " busy < " in line, line


def test_a_rank_that_holds_the_interpreter_lock_is_reported_as_silent(root, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    run(root, "holds_the_lock.py", 2, fifo, {"HORO_STALL_LIMIT_MS": "500", "HORO_ANSWER_TIMEOUT_MS": "500"})
