"""Runs programs/ on several ranks with the variables of torchrun, which no program of these tests reads itself."""

import os
import pathlib
import re
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tools"))

import ranks  # noqa: E402

OURS = re.compile(r"HORO_(RANK|SIZE|LOCAL_|ADDR|KEY_|JOB|STARTED_BY)")
OTHERS = re.compile(r"OMPI_|PMI|SLURM_|TORCHELASTIC_")


class Torchrun:
    """See ranks.ThisHost."""

    def __init__(self):
        self._host, self._port = ranks.free_address().split(":")

    def prefix(self, _):
        return []

    def environment(self, rank, size):
        kept = {name: value for name, value in os.environ.items() if not (OURS.match(name) or OTHERS.match(name))}
        place = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
        meeting = {"MASTER_ADDR": self._host, "MASTER_PORT": self._port}
        plain = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore::FutureWarning"}
        return kept | plain | {name: str(value) for name, value in (place | meeting).items()}


@pytest.fixture
def launch(monkeypatch):
    """launch(program, size): the outputs of the ranks of programs/<program>.py. Fails if a rank fails, unless `codes`
    are the expected exit statuses."""

    monkeypatch.setattr(ranks, "GRACE_S", 60)  # for the other ranks after one was killed

    def run(program, size, deadline_s=120, env=None, arguments=(), codes=None):
        command = [sys.executable, str(HERE / "programs" / f"{program}.py"), *map(str, arguments)]
        slowness = 3 if os.environ.get("TEST_DEVICE") == "fake" else 1  # its copies are late
        ended = ranks.run_ranks(command, size, slowness * deadline_s, env, Torchrun())
        if [rank.code for rank in ended] != (codes or [0] * size):
            pytest.fail(f"{program} on {size} ranks:\n{ranks.RanksFailed(ended)}", pytrace=False)
        return [rank.output for rank in ended]

    return run


@pytest.fixture
def executable():
    """The horo executable."""
    given = os.environ.get("HORO_EXE")
    return given or str(pathlib.Path(sys.executable).with_name("horo"))
