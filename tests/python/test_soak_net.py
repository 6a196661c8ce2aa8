"""Short runs of tools/soak net, corrupt, and bits between two hosts, and their checks."""

import json
import subprocess
import sys

import hosts
import pytest
from soaks import corrupt, net

CAPTURED = {"capture_output": True, "text": True, "timeout": 900}
needs_line = pytest.mark.skipif(hosts.missing(line=True) is not None, reason=str(hosts.missing(line=True)))


@needs_line
def test_the_hosts_of_a_failed_line_report_each_other_in_time(root):
    command = [sys.executable, root / "tools/soak", "net", "--json", "--count", "5", "--deadline-ms", "2000"]
    ended = subprocess.run(command, **CAPTURED)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = json.loads(ended.stdout)["rows"]
    assert len(rows) == 5 and rows[-1]["what"].startswith("brief ")
    assert sum(row["named"] == row["ended"] for row in rows) >= 3, rows


@needs_line
def test_changed_bytes_between_hosts_are_found(root):
    command = [sys.executable, root / "tools/soak", "corrupt", "--json", "--count", "4"]
    ended = subprocess.run(command, **CAPTURED)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["changed"] > 0


READY = {"ready": {}}
DONE, WRONG = READY | {"done": {}}, READY | {"failed": {"text": "AssertionError: "}}
FOUND = READY | {"lost": {"text": "rank 1: connection to rank 0 was ended: a payload with checksum 1, expected 2"}}
GONE = READY | {"lost": {"text": "rank 1 is lost: its process ended"}}


@pytest.mark.parametrize(
    "said, count, right",
    [
        ([DONE, DONE], 0, True),
        ([DONE, DONE], 1, False),
        ([FOUND, GONE], 1, True),
        ([GONE, GONE], 1, False),
        ([{"lost": GONE["lost"]}, GONE], 1, True),
        ([FOUND, WRONG], 1, False),
        ([FOUND, READY], 1, False),
    ],
)
def test_a_change_must_be_reported_after_the_ranks_have_connected(said, count, right):
    assert (corrupt.judged(said, count) == []) == right


@needs_line
def test_a_bad_line_between_hosts_changes_no_bit(root):
    count = ["--schedules", "8", "--fast-schedules", "8", "--torch-schedules", "0", "--ranks", "3,4", "--steps", "2"]
    line = ["--line", "delay 1ms, jitter 200us, loss 0.5%, reorder 0.5%"]
    ended = subprocess.run([sys.executable, root / "tools/soak", "bits", "--json", *count, *line], **CAPTURED)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = {(row["order"], row["ranks"]): row for row in json.loads(ended.stdout)["rows"]}
    for size in (3, 4):
        assert rows["canonical", size]["schedules"] == 8 and len(rows["canonical", size]["sha256"]) == 1


SILENT = "rank 2 gave no sign of life for 2.0 s while collectives were in flight (HORO_DEADLINE_MS=2000, seen by rank "


@pytest.mark.parametrize(
    "origin, text, right",
    [
        (2, SILENT + "0): it is stopped, hangs, or lost its network", True),
        (1, "rank 1 was lost", False),
        (-1, "a rank was lost", False),
    ],
)
def test_a_rank_of_the_first_of_two_hosts_has_to_name_one_of_the_second(origin, text, right):
    assert net.is_right({"origin": origin, "text": text}, rank=0, on_each=2) == right


@pytest.mark.parametrize("judge, right", [(0, True), (3, False)])
def test_only_the_other_host_may_report_a_rank_of_this_host(judge, right):
    broken = f"rank 2 is lost: its connection broke off without a goodbye (Connection timed out, seen by rank {judge})"
    for text in (f"{SILENT}{judge}): it is stopped", f"rank {judge}: rank 2 did not connect within 6000 ms", broken):
        assert net.is_right({"origin": 2, "text": text}, rank=3, on_each=2) == right
