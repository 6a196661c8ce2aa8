"""A short run of tools/soak."""

import argparse
import json
import subprocess

import ranks
from soaks import mistakes


def test_bits_do_not_depend_on_the_schedule(root):
    command = [*ranks.start.tool(), root / "tools/soak", "bits", "--json", "--schedules", "7", "--ranks", "2,3,4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    hashes = {(row["order"], row["ranks"]): len(row["sha256"]) for row in summary["rows"]}
    assert {hashes["canonical", size] for size in (2, 3, 4)} == {1}
    assert max(hashes["fast", size] for size in (3, 4)) >= 2
    assert summary["compositions"] >= 10


def test_mistakes_end_on_all_ranks_and_name_the_culprit(root):
    command = [*ranks.start.tool(), root / "tools/soak", "mistakes", "--json", "--count", "60", "--limit-ms", "4000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    assert summary["mistakes"] == 60 and summary["wrong"] == []
    assert len(summary["rows"]) >= 20


def test_collectives_have_the_results_of_the_oracle(root):
    command = [*ranks.start.tool(), root / "tools/soak", "collectives", "--json", "--cases", "200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    assert summary["wrong"] == []
    assert sum(summary["ran"][wire] for wire in ("over tcp", "over shm", "over in_process")) >= 200


def test_a_mistake_that_ends_wrongly_is_found():
    job = mistakes.Job(0, 2, [], {"kind": "abort", "culprit": 1, "number": 1})
    options = argparse.Namespace(limit_ms=3000)
    right = [
        {"rank": rank, "wrong": "", "said": "Mismatch", "text": "shape [4] on rank 0", "ms": 5} for rank in range(2)
    ]
    described = {"number": 0, "kind": "shape", "culprit": 1}
    assert list(mistakes.judge(described, right, job, options)) == []
    assert "1 ranks reported its end" in next(mistakes.judge(described, right[:1], job, options))
    for key, value, said in (
        ("wrong", "named rank 0", "rank 1 named rank 0"),
        ("ms", 60_000, "took 60000 ms"),
        ("text", "something else", "ranks report different texts"),
    ):
        (finding,) = mistakes.judge(described, [right[0], right[1] | {key: value}], job, options)
        assert said in finding
