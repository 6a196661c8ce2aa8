"""Ranks whose script imports torch are forked from a process that has imported it: fork_server.py."""

import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS), str(TESTS.parent / "tools")]

import fork_server  # noqa: E402
import ranks  # noqa: E402

ranks.start = fork_server.Starter(ranks.start_process)

# Files whose tests take long: workers begin with them, so that none is left over with one at the end.
LONG = ("test_soak", "test_survive", "test_elastic", "test_run_", "test_suite", "test_trainers", "test_launchers")
LONG += ("test_building", "test_horovod_scripts", "test_train_step", "test_ends", "test_devices", "test_gpu_check")


@pytest.fixture
def fake_cuda():
    """The path of the fake of the CUDA plug-in. It is a part of the release build, which precedes these tests."""
    library = TESTS.parent / "build/release/tests/ring/libhoro_fake_cuda.so"
    if not library.exists():
        pytest.skip(f"{library} is not built: tools/test release")
    return library


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.path.name.startswith(LONG))
