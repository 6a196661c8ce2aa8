"""A short part of tools/step_checks: planted delays of ranks, and what horo says of them."""

import re
import subprocess
import sys


def test_planted_delays_are_named(root):
    short = ["--loaded", "--compute-ms", "8", "--only", "checkpoint"]
    command = [sys.executable, root / "tools/step_checks", *short]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    checks = re.split(r"^(?=right  |WRONG  )", done.stdout, flags=re.MULTILINE)[1:]
    assert len(checks) == 1, done.stdout + done.stderr
    for check in checks:  # where the ranks have waited for a core all the time, nothing is known
        assert check.startswith("right") or "the machine was too busy" in check, check
