"""horo run --hosts where the other host or its connection misbehaves: a program stands in for ssh."""

import functools
import os
import pathlib
import signal
import subprocess
import time

import pytest
from launching import DEADLINE_S, HORO, all_end_soon, clean_environment, pids_in

OTHER = "192.0.2.1"  # of a network that is nowhere
ADDR = "127.0.0.1:29377"  # the ranks do not use it
LEAST_FLOOD = 100 << 20  # bytes that a host writes here while it is being waited for


def start_job(folder, ssh, *words):
    """Starts a job of this host and another one, whose ssh is this shell program; $COMMAND is what it is to run."""
    program = folder / "ssh"
    program.write_text(f'#!/bin/bash\nCOMMAND="${{@: -1}}"\n{ssh}\n')
    program.chmod(0o755)
    env = clean_environment()
    env["PATH"] = f"{folder}:{env['PATH']}"
    options = ["-H", f"localhost:1,{OTHER}:1", "--addr", ADDR]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([HORO, "run", *options, *words], env=env, cwd=folder, **pipes)


@pytest.fixture
def start(tmp_path):
    return functools.partial(start_job, tmp_path)


@pytest.fixture(scope="module", autouse=True)
def lost(tmp_path_factory):
    """A job that loses its other host. It takes 12 s to end the ranks here, while the other tests run."""
    ssh = 'exec 3<&0; sh -c "$COMMAND" <&3 & until [ -e up.1 ]; do sleep 0.1; done; kill -9 $!; exit 255'
    return start_job(tmp_path_factory.mktemp("lost"), ssh, "sh", "-c", "touch up.$HORO_RANK; exec sleep 600")


def test_what_a_shell_leaves_behind_does_not_hold_up_the_end_of_a_job(start, tmp_path):
    program = "head -c 70000 /dev/zero | tr '\\0' $HORO_RANK; sleep 2.5; exit 7"
    job = start('tee sent | sh -c "$COMMAND"; exec sleep 600', "sh", "-c", program)
    out, errors = job.communicate(timeout=DEADLINE_S)
    parts = [(number, length) for number in "01" for length in (1 << 16, 70000 - (1 << 16))]
    expected = [f"[{number}] {number * length}" for number, length in parts]
    assert job.returncode == 7 and sorted(out.splitlines()) == sorted(expected), errors
    assert (tmp_path / "sent").read_bytes().rpartition(b"\xff")[2].startswith(b"\0"), "no kAlive after kGo"


def test_the_exit_code_arrives_after_output_that_ends_inside_of_a_line(start):
    job = start('exec sh -c "$COMMAND"', "sh", "-c", f"trap '' INT; exec yes {'y' * 999}")
    job.stdout.read(1)
    time.sleep(0.5)  # until the pipes are full
    for _ in range(2):
        job.send_signal(signal.SIGINT)
        time.sleep(0.3)
    out, errors = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 128 + signal.SIGKILL, errors
    assert "horo host" not in out and "\n\n" not in out


def resident_bytes(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) << 10


def test_a_flood_before_the_start_is_not_kept_in_memory(start, tmp_path):
    flood = f"yes | tee >(head -c {LEAST_FLOOD} | tail -c 1 > {tmp_path}/flooded)"
    job = start(flood, "--start-timeout", "60", "true")
    end = time.monotonic() + DEADLINE_S
    while not (tmp_path / "flooded").exists() or not (tmp_path / "flooded").stat().st_size:
        assert time.monotonic() < end and job.poll() is None
        time.sleep(0.05)
    (guard,) = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    assert resident_bytes(guard) < LEAST_FLOOD * 0.6
    job.kill()
    job.communicate()


def start_message(words, silence_ms):
    def text(value):
        return len(value.encode()).to_bytes(4, "little") + value.encode()

    body = os.urandom(32) + text("/") + (0).to_bytes(4, "little")
    body += len(words).to_bytes(4, "little") + b"".join(map(text, words)) + silence_ms.to_bytes(4, "little")
    return b"horo host 1\n" + len(body).to_bytes(4, "little") + body


def test_a_host_ends_its_ranks_when_the_launcher_is_silent():
    words = ["run", "--part", "-n", "1", "--", "sh", "-c", "echo pid=$$; exec sleep 600"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
    host = subprocess.Popen([HORO, "host"], env=clean_environment(), **pipes)
    host.stdin.write(start_message(words, silence_ms=500))
    assert host.stdout.readline().startswith(b"horo host: ready")
    for byte in [b"\0", b"\xff", *[b"\0"] * 10]:  # alive, go, alive
        host.stdin.write(byte)
        time.sleep(0.1)
    pids = pids_in(host.stdout.readline().decode())
    assert host.poll() is None and os.path.exists(f"/proc/{pids[0]}")
    assert host.wait(DEADLINE_S) == 1 and all_end_soon(pids)
    before_the_start = subprocess.Popen([HORO, "host"], env=clean_environment(), **pipes)
    before_the_start.stdin.write(start_message(words, silence_ms=100))
    assert before_the_start.wait(DEADLINE_S) == 1
    for one in (host, before_the_start):
        one.communicate()


def test_the_loss_of_a_host_is_the_jobs_failure_and_not_the_sigterm_that_follows(lost):
    _, errors = lost.communicate(timeout=DEADLINE_S)
    assert lost.returncode == 1 and f"host {OTHER} was lost: exit code 255" in errors, errors
    assert "host localhost did not end within 12 s" in errors
