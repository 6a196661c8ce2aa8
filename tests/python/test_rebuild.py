"""A world that is rebuilt while it trains has the bits of one that is not."""

import pathlib
import subprocess
import sys

import pytest
import ranks

ROOT = pathlib.Path(__file__).resolve().parents[2]


def output_of(size, *arguments, transport="auto"):
    program = ROOT / "tests/python/programs/rebuilt.py"
    ended = ranks.run_ranks([sys.executable, str(program), *arguments], size, 120, {"HORO_TRANSPORT": transport})
    if any(rank.code != 0 for rank in ended):
        pytest.fail(str(ranks.RanksFailed(ended)), pytrace=False)
    return [line for line in ended[0].output.splitlines() if line.startswith(("way", "sha256"))]


@pytest.fixture(scope="module")
def undisturbed():
    return output_of(3, "0")


@pytest.mark.parametrize("transport, every", [("shm", "1"), ("shm", "7"), ("tcp", "3")])
def test_the_bits_of_training_stay(undisturbed, transport, every):
    assert output_of(3, every, transport=transport) == undisturbed
    assert len(undisturbed) == 7


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("milliseconds", [3, 40, 151])
def test_a_death_at_any_time_ends_the_other_ranks(transport, milliseconds):
    settings = {"HORO_TRANSPORT": transport, "HORO_START_TIMEOUT_MS": "2000"}
    command = [sys.executable, str(ROOT / "tests/python/programs/rebuilt.py"), "dies", str(milliseconds)]
    *others, dead = ranks.run_ranks(command, 3, 30, settings)
    assert dead.code == -9
    for rank in others:
        assert rank.code == 0 and "rank 2" in rank.output.partition(" s: ")[2], str(ranks.RanksFailed(others))
        assert float(rank.output.partition("lost after ")[2].split()[0]) < 4


def test_the_benchmark_prints_a_row_for_each_world():
    command = [*ranks.start.tool(), str(ROOT / "bench/rebuild"), "--ranks", "2", "--count", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    head, *rows = done.stdout.splitlines()
    assert head.split()[:2] == ["world", "all"] and [row.split()[0] for row in rows] == ["shm", "tcp"]
    for row in rows:
        everything, *parts = map(float, row.split()[2:])
        assert 0 < everything < 5000 and all(part >= 0 for part in parts)


def test_digits_has_the_same_parameters():
    digits = [str(ROOT / "tests/python/programs/digits_briefly.py"), "2"]
    (sha256,) = output_of(2, "0", *digits)
    assert output_of(2, "10", *digits) == [sha256]
