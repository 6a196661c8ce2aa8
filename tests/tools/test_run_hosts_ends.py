"""The exit codes of an elastic job on two hosts of two ranks: 0 only where ranks have come to their ends."""

import os
import pathlib
import signal
import subprocess
import time

import pytest
from launching import DEADLINE_S, horo, parent_of
from test_run_elastic_hosts import job, processes  # noqa: F401

KILLED = 128 + signal.SIGKILL
# Ranks of a host die, of the other one go on in epoch 1 and end as the test says.
DIE_THEN = """
if rank in (%s): die()
members = member.view()[0]
while set(members) & {%s}: members = member.view()[0]
print("view", flush=True)
wait_for("end")
"""


def dying(host):
    ranks = "0, 1" if host == 0 else "2, 3"
    return DIE_THEN % (ranks, ranks)


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize(
    "end, code, lost_code",
    [("member.leave()", 0, 0), ("die()", KILLED, KILLED), ("member.leave(with_process=True); sys.exit(3)", 3, KILLED)],
)
def test_a_host_whose_ranks_are_lost_ends_as_the_job(job, lost, end, code, lost_code):  # noqa: F811
    job = job(dying(lost) + end)
    job.start_both()
    assert [job.hosts[1 - lost].stdout.readline()[4:] for _ in range(2)] == ["view\n"] * 2
    job.line(lost, "the ranks of this host have ended")
    with pytest.raises(subprocess.TimeoutExpired):
        job.hosts[lost].wait(0.2)
    job.let("end")
    ends = {host: job.ended(host) for host in (lost, 1 - lost)}
    assert ends[1 - lost][0] == code, ends
    assert ends[lost][0] == lost_code, ends


def test_a_host_whose_ranks_are_lost_fails_when_it_loses_the_job(job):  # noqa: F811
    job = job(dying(1) + "member.leave()")
    job.options = ["--rendezvous", job.address, "--park-timeout", "1"]
    rendezvous = job.start_rendezvous()
    job.start_both()
    assert job.hosts[0].stdout.readline()[4:] == "view\n"
    rendezvous.kill()
    code, _, errors = job.ended(1)
    assert code == KILLED and "failed first: signal 9 (SIGKILL)" in errors, errors
    assert "the end of the job is not known here" in errors
    job.let("end")
    assert job.ended(0)[0] == 0


def test_a_host_whose_ranks_have_all_finished_ends_at_once(job):  # noqa: F811
    job = job("if rank > 1: wait_for('end')\nmember.leave()\nsys.exit(0)")
    job.options = ["--rendezvous", job.address]
    job.start_rendezvous()
    job.start_both()
    assert job.ended(0)[0] == 0
    assert job.hosts[1].poll() is None
    job.let("end")
    assert job.ended(1)[0] == 0


def test_too_few_ranks_on_all_hosts_end_each_host_with_a_failure(job):  # noqa: F811
    program = "if rank == 3:\n    member.leave(with_process=True)\n    sys.exit('no data')\n"
    program += "while member.receive(FREEZE, PARKED)[0] == FREEZE: member.frozen({})\nsignal.pause()"
    job = job(program, options=["--park-timeout", "0.5"], least=4)
    job.start_both()
    assert [job.ended(host)[0] for host in (0, 1)] == [1, 1]


def test_sigkill_of_all_processes_of_host_0_leaves_no_key_and_no_file(job, tmp_path, monkeypatch):  # noqa: F811
    for variable in ("TMPDIR", "XDG_RUNTIME_DIR"):
        (tmp_path / variable).mkdir(0o700)
        monkeypatch.setenv(variable, str(tmp_path / variable))
    shared = set(pathlib.Path("/dev/shm").iterdir())
    job = job("signal.pause()")
    job.start_both()
    rendezvous = job.service("rendezvous")
    guard = parent_of(rendezvous)
    assert parent_of(guard) == job.hosts[0].pid
    for pid in (job.hosts[0].pid, guard):
        os.kill(pid, signal.SIGKILL)
    job.hosts[1].kill()
    end = time.monotonic() + DEADLINE_S
    while any(job.address in words for words in processes().values()) and time.monotonic() < end:
        time.sleep(0.01)
    assert list((tmp_path / "TMPDIR").iterdir()) == []
    assert set(pathlib.Path("/dev/shm").iterdir()) <= shared
    horo("status")  # removes the sockets of jobs that are gone
    assert list((tmp_path / "XDG_RUNTIME_DIR").rglob("*.*")) == []
