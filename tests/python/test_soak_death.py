"""A short part of tools/soak death."""

import json
import subprocess
import sys


def test_a_killed_rank_with_much_memory_is_named_by_all_others(root):
    options = ["--count", "3", "--mib", "512", "--limit-ms", "5000"]
    command = [sys.executable, root / "tools/soak", "death", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    assert summary["deaths"] == 3 and summary["heard_ms"]["count"] >= 3
