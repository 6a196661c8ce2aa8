"""Ranks whose script imports torch are forked from a process that has imported it: fork_server.py."""

import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS), str(TESTS.parent / "tools")]

import fork_server  # noqa: E402
import ranks  # noqa: E402

ranks.start = fork_server.Starter(ranks.start_process)
