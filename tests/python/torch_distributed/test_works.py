"""Works, futures, timeouts, and errors by name."""

import random

import pytest


@pytest.mark.parametrize("size", [2, 3])
def test_works_and_futures(launch, size):
    launch("works", size, env={"HORO_DEADLOCK_MS": "1500"})


@pytest.mark.parametrize("kind, seed", [("ddp", 1), ("fsdp2", 2), ("dcp", 4)])
def test_a_killed_rank_is_named_on_every_other_rank(launch, tmp_path, kind, seed):
    """100 random seeds of each kind: tools/torch_suite kill."""
    victim = random.Random(seed).randrange(3)
    launch("killed", 3, arguments=[kind, seed, tmp_path], codes=[-9 if rank == victim else 0 for rank in range(3)])
