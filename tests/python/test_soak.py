"""A short part of tools/soak."""

import json
import subprocess
import sys


def test_bits_do_not_depend_on_the_schedule(root):
    command = [sys.executable, root / "tools/soak", "bits", "--json", "--schedules", "14", "--ranks", "2,3,4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    hashes = {(row["order"], row["ranks"]): len(row["sha256"]) for row in summary["rows"]}
    assert {hashes["canonical", size] for size in (2, 3, 4)} == {1}
    assert max(hashes["fast", size] for size in (3, 4)) >= 2
    assert summary["compositions"] >= 20
