"""A short run of tools/soak learn, and its judge."""

import json
import subprocess

import ranks
from soaks import learn
from test_launchers import executable


def soak(root, *options, code=0):
    command = [*ranks.start.tool(), root / "tools/soak", "learn", "--json", "--horo", executable("horo"), *options]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=900)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_ranks_that_join_have_the_bits_of_one_process(root):
    summary = soak(root, "--runs", "2", "--ways", "sync", "mean", "--passes", "8", "--events", "0")
    assert summary["wrong"] == [] and summary["joins"] >= 1


def test_each_sample_counts_once_per_pass(root):
    summary = soak(root, "--runs", "0", "--passes", "10", "--events", "1")
    assert summary["wrong"] == [] and summary["events"] >= 2 and summary["joins"] >= 1


def test_a_scheduler_that_is_not_given_is_found(root):
    summary = soak(
        root, "--runs", "1", "--ways", "plain", "--passes", "8", "--events", "0", "--fault", "schedule", code=1
    )
    assert "the ranks differ in" in summary["wrong"][0]


def text_of(takes, rounds):
    """Takes: of (step, member, indices). Rounds: of (step, contributors)."""
    lines = [f"[{member}] take {step} 0 {','.join(map(str, indices))}" for step, member, indices in takes]
    return "\n".join([*lines, *(f"[0] round {step} {ids} 0,1" for step, ids in rounds)])


def test_samples_that_are_used_twice_or_never_are_found():
    everything = list(range(learn.SAMPLES))
    right = [(1, 0, everything[:50]), (1, 1, everything[50:60]), (2, 0, everything[50:]), (2, 1, [7])]
    rounds = [(1, "0"), (2, "0")]  # member 1 has no part in the first round, and a copy in the second one
    assert list(learn.faults_of_samples(learn.Told(text_of(right, rounds)), 0, 1)) == []
    (twice,) = learn.faults_of_samples(learn.Told(text_of(right, [(1, "0"), (2, "0,1")])), 0, 1)
    assert twice == "pass 0: samples used other than once: {7: 2}"
    (never,) = learn.faults_of_samples(learn.Told(text_of(right, [(1, "1"), (2, "0")])), 0, 1)
    assert "0: 0" in never and "50: 2" in never
