"""A short run of tools/soak cycles, and that it can fail."""

import json
import subprocess
import sys

from soaks import cycles


def test_jobs_leave_nothing_behind_in_their_process(root):
    # Not forked: memory that a fork shares is counted when it is touched, as if it grew.
    command = [sys.executable, root / "tools/soak", "cycles", "--json", "--cycles", "40", "--failures", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["rank"] for row in json.loads(done.stdout)["rows"]] == [0, 1, 0]


def test_growth_is_found():
    first = {"descriptors": 4, "threads": 1, "segments": 0, "rss_bytes": 1 << 25}
    row = {"what": "cycles", "rank": 1, "jobs": 500, "first": first, "last": dict(first)}
    assert list(cycles.judge(row)) == []
    for name, grown in (("descriptors", 5), ("threads", 2), ("segments", 1), ("rss_bytes", 1 << 26)):
        (finding,) = cycles.judge(row | {"last": first | {name: grown}})
        assert "rank 1" in finding and (name in finding or "memory" in finding)
