"""A short run of tools/soak death."""

import json
import pathlib
import signal
import subprocess
import sys


def test_a_killed_rank_with_much_memory_is_named_by_all_others(root):
    options = ["--count", "3", "--mib", "512", "--limit-ms", "5000"]
    command = [sys.executable, root / "tools/soak", "death", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    assert summary["deaths"] == 3 and summary["heard_ms"]["count"] >= 3


def test_sigterm_ends_the_workers_too(root):
    command = [sys.executable, root / "tools/soak", "death", "--count", "1000", "--mib", "64"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as soak:
        try:
            soak.stdout.readline()  # after the first death
            workers = pathlib.Path(f"/proc/{soak.pid}/task/{soak.pid}/children").read_text().split()
        finally:
            soak.terminate()
    assert soak.returncode == 128 + signal.SIGTERM
    assert not [pid for pid in workers if pathlib.Path("/proc", pid).exists()]
