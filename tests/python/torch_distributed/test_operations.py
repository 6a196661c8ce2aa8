"""The operations of a process group, on two and three ranks."""

import pytest


@pytest.mark.parametrize("size", [2, 3])
def test_every_operation_has_the_values_of_one_process(launch, size):
    launch("operations", size)
