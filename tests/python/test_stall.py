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
    assert len(warnings) == 1, ended[0].output
    assert "submitted by ranks 0, 2, but not by rank 1 for" in warnings[0]
    assert "warning: tensor" not in ended[1].output + ended[2].output
    assert "'lonely': submitted by ranks 0, 2, but not by rank 1 within" in ended[1].output


def test_a_rank_that_holds_the_interpreter_lock_is_reported_as_silent(root, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    run(root, "holds_the_lock.py", 2, fifo, {"HORO_STALL_LIMIT_MS": "500", "HORO_ANSWER_TIMEOUT_MS": "500"})
