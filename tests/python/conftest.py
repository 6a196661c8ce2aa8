"""Lets the tests import the modules of tools/, and runs programs/ on several ranks."""

import os
import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parent
ROOT = TESTS.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import ranks  # noqa: E402


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def run_program():
    """run_program(name, size): every rank runs programs/<name>.py. The test fails with all outputs if a rank fails."""

    def run(name, size, deadline_s=300, env=None, arguments=()):
        command = [sys.executable, str(TESTS / "programs" / f"{name}.py"), *map(str, arguments)]
        slowness = 3 if os.environ.get("TEST_DEVICE") == "fake" else 1  # its copies are late
        ended = ranks.run_ranks(command, size, slowness * deadline_s, env)
        if any(rank.code != 0 for rank in ended):
            pytest.fail(f"{name} on {size} ranks:\n{ranks.RanksFailed(ended)}", pytrace=False)
        return ended

    return run
