"""A short part of tools/step_checks: planted delays of ranks, and what horo says of them."""

import subprocess
import sys


def test_planted_delays_are_named_and_a_death_is_membership(root):
    short = ["--loaded", "--compute-ms", "8", "--only", "backward,checkpoint,death"]
    command = [sys.executable, root / "tools/step_checks", *short]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.count("right  ") == 3, done.stdout + done.stderr
