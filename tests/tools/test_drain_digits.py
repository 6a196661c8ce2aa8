"""Digits on drained hosts: 2 x 2 ranks in network namespaces with one horo run each, and all 4 ranks of one host."""

import re
import secrets
import signal
import subprocess
import sys

import pytest
from launching import HORO, ROOT, clean_environment

sys.path.insert(0, str(ROOT / "tools"))

import hosts  # noqa: E402
import ranks  # noqa: E402

DIGITS = str(ROOT / "examples/digits.py")
PORT = 29416
DEADLINE_S = 180


def start(words):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, env=clean_environment({"OMP_NUM_THREADS": "1"}), **pipes)


def wait_for_pass(job, number):
    """Rank 0 prints the progress of each pass."""
    for line in job.stdout:
        if f"pass {number:2}" in line:
            return
    raise AssertionError(job.stderr.read())


def test_four_ranks_of_one_host_leave():
    job = start([HORO, "run", "-n", "4", "--min-np", "2", ranks.start.python(), DIGITS])
    wait_for_pass(job, 2)
    job.send_signal(signal.SIGTERM)
    output, errors = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 143 and "sha256" not in output
    assert errors.startswith("horo run: the host is drained (SIGTERM): ranks 0, 1, 2, 3 leave after their round\n")
    assert "Traceback" not in errors and " died " not in errors, errors


@pytest.mark.skipif(hosts.missing() is not None, reason=str(hosts.missing()))
def test_the_ranks_of_the_other_host_train_on(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(secrets.token_bytes(32))
    key.chmod(0o600)
    with hosts.two_namespaces() as pair:
        run = [HORO, "run", "-n", "2", "--nnodes", "2", "--min-np", "2", "--key-file", str(key)]
        run += ["--addr", f"{pair.addresses['A']}:{PORT}", "--node-rank"]
        program = [ranks.start.python(), DIGITS]
        first, second = (start([*pair.on("AB"[host]), *run, str(host), *program]) for host in (0, 1))
        wait_for_pass(first, 3)
        second.send_signal(signal.SIGTERM)
        output, errors = second.communicate(timeout=DEADLINE_S)
        assert (second.returncode, output) == (0, ""), output + errors
        output, errors = first.communicate(timeout=DEADLINE_S)
    assert first.returncode == 0, errors
    (accuracy,) = re.findall(r"test accuracy ([\d.]+)%", output)
    assert float(accuracy) >= 96.5
    digests = re.findall(r"sha256 of the parameters (\w+)", output)
    assert len(digests) == 2 and len(set(digests)) == 1
    assert "host 1 is drained (SIGTERM): ranks 2, 3 leave after their round" in errors
    assert " died " not in errors and " evicted" not in errors, errors
