"""tools/soak survive --digits and --restarts: their judges, and short runs of them."""

import importlib.util
import sys

import pytest
from launching import ROOT
from test_survive_partitions import needs_hosts, needs_rank, run

sys.path.insert(0, str(ROOT / "tools"))

from soaks import survive_digits  # noqa: E402

CASE = survive_digits.CASES["rank"]
GOOD = "".join(
    f"{host} [{rank}] sha256 of the parameters ab\n{host} [{rank}] accuracy 97.00 %\n"
    for host, rank in ("A0", "B2", "B3")
)


@pytest.mark.parametrize(
    "text, codes, fault",
    [
        (GOOD, {"A": 0, "B": 0}, None),
        (GOOD, {"A": 1, "B": 0}, "exit code 1 of host A"),
        (GOOD.replace("ab", "cd", 1), {"A": 0, "B": 0}, "expected one sha256 on ranks [0, 2, 3]"),
        (GOOD.replace("97.00", "96.40", 1), {"A": 0, "B": 0}, "expected at least 96.5 %"),
        (GOOD.replace("[2]", "[1]"), {"A": 0, "B": 0}, "expected one sha256 on ranks [0, 2, 3]"),
    ],
)
def test_each_fault_is_found(text, codes, fault):
    found = list(survive_digits.faults(CASE, text, codes, 96.5))
    assert found == [] if fault is None else any(fault in one for one in found), found


@needs_hosts
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="no torch")
def test_digits_go_on_without_a_rank_and_without_each_host(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cases = ["rank", "host-1", "host-0"]
    table = run("--digits", *cases, "--passes", "5", "--accuracy", "90")["table"]
    assert list(table) == cases


@needs_hosts
@needs_rank
def test_ranks_go_on_while_the_rendezvous_starts_again():
    assert run("--restarts", "5")["restarts"] == 5
