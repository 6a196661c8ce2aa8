"""Works, futures, timeouts, and errors by name."""

import pytest


@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.long), 3])
def test_works_and_futures(launch, size):
    launch("works", size, env={"HORO_DEADLOCK_MS": "1500"})
