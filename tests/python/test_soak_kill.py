"""A short run of tools/soak kill."""

import json
import subprocess
import sys


def test_killed_and_stopped_ranks_are_named_by_all_others(root):
    command = [sys.executable, root / "tools/soak", "kill", "--json", "--count", "3", "--no-digits"]
    command += ["--start-timeout-ms", "3000"]  # longer where an undisturbed run takes longer
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    assert summary["kills"] == 3 and summary["wrong"] == []
    assert {row["signal"] for row in summary["rows"]} == {"SIGKILL", "SIGSEGV", "SIGSTOP"}
    assert any(row["ended"] == "named" for row in summary["rows"])
