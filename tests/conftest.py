"""Ranks whose script imports torch are forked from a process that has imported it: fork_server.py."""

import os
import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS), str(TESTS.parent / "tools")]

import fork_server  # noqa: E402
import ranks  # noqa: E402

ranks.start = fork_server.Starter(ranks.start_process)

# Files whose tests take long: workers begin with them, so that none is left over with one at the end.
LONG = ("test_errors", "test_soak", "test_survive", "test_elastic", "test_run_", "test_suite", "test_trainers")
LONG += ("test_launchers", "test_building", "test_horovod_scripts", "test_train_step", "test_ends", "test_devices")
LONG += ("test_torch", "test_zero", "test_checkpoint", "test_bench")


@pytest.fixture
def fake_cuda():
    """The path of the fake of the CUDA plug-in. It is a part of the release build, which precedes these tests."""
    library = TESTS.parent / "build/release/tests/ring/libhoro_fake_cuda.so"
    if not library.exists():
        pytest.skip(f"{library} is not built: tools/test release")
    return library


def pytest_configure(config):
    config.addinivalue_line("markers", "long: runs if LARGE_TESTS is set, as by tools/test long")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.path.name.startswith(LONG))
    if not os.environ.get("LARGE_TESTS"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="long: LARGE_TESTS=1"))
