"""SIGTERM to horo run --min-np: its ranks get a notice, and leave. Stand-ins of ranks speak the socket of their guard;
several hosts are this one."""

import os
import signal
import time

import pytest
from elastic_member import MEMBER
from launching import DEADLINE_S
from test_run_elastic import start
from test_run_elastic_hosts import job  # noqa: F401

READY = "print('ready', flush=True)\n"
LEAVE = "print('grace', member.notice(), flush=True)\nmember.leave(text=b'drained')\n"
DRAINED = "horo run: the host is drained (SIGTERM): ranks 0, 1 leave after their round\n"


def drain(program, ranks=2, options=("--min-np", "1"), signals=(signal.SIGTERM,), member=MEMBER):
    """Sends the signals to a job whose ranks have printed a line; returns its exit code, other lines and errors."""
    running, out = start(ranks, program, options, member)
    assert all(out.readline() for _ in range(ranks))
    running.send_signal(signals[0])
    told = ""
    for number in signals[1:]:
        told += running.stderr.readline()
        running.send_signal(number)
    output, errors = running.communicate(timeout=DEADLINE_S)
    return running.returncode, sorted(output.splitlines()), told + errors


def test_the_ranks_leave_after_their_notice_which_ends_the_job_of_one_host():
    done = drain(READY + LEAVE, options=("--min-np", "2", "--grace", "20.5"))
    assert done == (143, ["[0] grace 20500", "[1] grace 20500"], DRAINED)


def test_ranks_that_end_their_scripts_within_the_grace_have_succeeded():
    assert drain(READY + "member.notice()\nmember.leave()") == (0, [], DRAINED)


def test_a_failure_within_the_grace_is_the_jobs():
    code, _, errors = drain(READY + LEAVE + "if rank: sys.exit(7)")
    assert code == 7 and "rank 1 on host" in errors


def test_a_static_job_without_steps_has_none_to_leave_after_and_ends_at_once():
    code, _, errors = drain(READY + "signal.pause()", options=("--grace", "30"), member="")
    assert code == 143 and "leave after" not in errors, errors


def test_the_others_go_on_when_one_has_left():
    leaving = "if rank == 2: member.leave(text=b'drained'); sys.exit()\n"
    program = READY + "member.notice()\n" + leaving + "time.sleep(0.1)\nmember.frozen({})\nmember.receive(VIEW)\n"
    code, _, errors = drain(program + "member.installed(1)\nmember.leave(text=b'drained')", ranks=3)
    assert code == 143 and "rank 2 left (drained); epoch 1 has ranks 0, 1\n" in errors, errors


@pytest.mark.parametrize("program", ["signal.pause()", "member.leave()\nsignal.pause()"], ids=["here", "left"])
def test_ranks_that_are_left_after_the_grace_get_sigterm(program):
    begun = time.monotonic()
    code, _, errors = drain(READY + program, options=("--min-np", "1", "--grace", "0.3"))
    assert code == 143 and time.monotonic() - begun > 0.3
    assert errors.endswith("ranks 0, 1 did not leave within 300 ms of the notice (--grace): SIGTERM\n")


def test_a_parked_rank_has_the_whole_grace():
    park = "if rank: os.kill(os.getpid(), signal.SIGSTOP)\nmember.frozen({})\nmember.receive(PARKED)\n"
    running, out = start(2, park + READY + LEAVE, ("--min-np", "2", "--evict-after", "0.5", "--grace", "2"))
    assert out.readline() == "[0] ready\n"
    running.send_signal(signal.SIGTERM)
    output, errors = running.communicate(timeout=DEADLINE_S)
    assert output == "[0] grace 2000\n" and "is drained (SIGTERM): ranks 0, 1 leave after their round\n" in errors
    assert "rank 1 did not leave within 2 s of the notice (--grace): SIGTERM\n" in errors, errors
    assert running.returncode == 143, errors


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_the_ranks_at_once(number, code):
    handler = "signal.signal(signal.SIGINT, signal.SIG_DFL)\n" + READY
    done = drain(handler + "signal.pause()", signals=(signal.SIGTERM, number))
    assert done == (code, [], DRAINED)


def test_a_rank_without_a_session_gets_sigterm_instead_of_a_notice():
    program = READY + "if rank: signal.pause()\n" + LEAVE
    code, lines, errors = drain(program, member=MEMBER.replace("= Member()", "= rank or Member()"))
    assert (code, lines) == (143, ["[0] grace 30000"])
    assert "horo run: the host is drained: SIGTERM to rank 1, without a session yet\n" in errors


# ---- Several hosts.

TWO = """
print('ready', flush=True)
if rank // 2 in HOSTS:
    member.notice()
    wait_for('leave')
    member.leave(text=b'drained')
    sys.exit()
wait_for('need')
if rank % 2: member.frozen({})
print(*member.view()[0], flush=True)
wait_for('end')
member.leave()
"""


def story(host):
    ranks = "ranks 0, 1" if host == 0 else "ranks 2, 3"
    return f"host {host} is drained (SIGTERM): {ranks} leave after their round"


def begin(job, *drained, options=()):  # noqa: F811
    """Drains hosts of a job; returns when all hosts have been told."""
    job = job(TWO.replace("HOSTS", str(drained)), options=options)
    job.start_both()
    for host in (0, 1):
        assert all(job.hosts[host].stdout.readline() for _ in range(2))
    for host in drained:
        job.hosts[host].send_signal(signal.SIGTERM)
        for other in (0, 1):
            job.line(other, story(host))
    job.let("leave")
    return job


def test_a_drained_host_ends_and_the_others_go_on(job):  # noqa: F811
    job = begin(job, 1)
    code, lines, errors = job.ended(1)
    assert (code, lines) == (0, []), errors
    job.let("need"), job.let("end")
    code, lines, errors = job.ended(0)
    assert code == 0 and sorted(lines) == ["[0] 0 1", "[1] 0 1"], errors
    assert "rank 2 left (drained), rank 3 left (drained); epoch 1 has ranks 0, 1\n" in errors or (
        "rank 3 left (drained), rank 2 left (drained); epoch 1 has ranks 0, 1\n" in errors
    )
    assert " died " not in errors and " evicted" not in errors


def test_host_0_serves_the_others_until_its_grace_is_over(job):  # noqa: F811
    job = begin(job, 0, options=["--grace", "2"])
    job.let("need")
    assert sorted(job.hosts[1].stdout.readline() for _ in range(2)) == ["[2] 2 3\n", "[3] 2 3\n"]
    code, _, errors = job.ended(0)
    assert code == 0, errors
    job.let("end")
    code, _, errors = job.ended(1)
    assert code == 0, errors


def test_hosts_that_are_all_drained_have_the_code_of_sigterm(job):  # noqa: F811
    job = begin(job, 0, 1)
    assert [job.ended(host)[0] for host in (0, 1)] == [143, 143]


def test_ranks_that_are_ended_after_the_grace_are_deaths_that_the_others_are_told_at_once(job):  # noqa: F811
    program = READY + "if rank > 1: signal.pause()\nwhile member.view()[0] != [0, 1]: pass\nmember.leave()"
    job = job(program, options=["--grace", "0.3", "--evict-after", "60"])
    job.start_both()
    assert job.hosts[1].stdout.readline() and job.hosts[1].stdout.readline()
    begun = time.monotonic()
    job.hosts[1].terminate()
    code, _, errors = job.ended(0)
    assert code == 0 and errors.count(" died (signal 15 (SIGTERM))") == 2, errors
    assert time.monotonic() - begun < 30
    code, _, errors = job.ended(1)
    assert code == 143 and "ranks 2, 3 did not leave within 300 ms of the notice (--grace): SIGTERM\n" in errors


def test_a_notice_is_told_to_an_agent_that_starts_later(job):  # noqa: F811
    job = job(TWO.replace("HOSTS", "[1]"))
    job.start_both()
    assert job.hosts[1].stdout.readline() and job.hosts[1].stdout.readline()
    os.kill(job.service("agent", 1), signal.SIGKILL)
    job.hosts[1].send_signal(signal.SIGTERM)
    job.line(0, story(1))
