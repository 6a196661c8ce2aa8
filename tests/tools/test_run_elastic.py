"""horo run --min-np: the guard's side of an elastic job. Stand-ins of ranks speak its socket."""

import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
from elastic_member import MEMBER
from launching import DEADLINE_S, all_end_soon, clean_environment, command, horo, pids_in, run


def elastic(ranks, program, least=1, options=()):
    return run(ranks, MEMBER + program, options=("--min-np", str(least), *options))


def start(ranks, program, options, member=MEMBER):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    job = subprocess.Popen(command(ranks, member + program, options), env=clean_environment(), **pipes)
    return job, job.stdout


def test_a_job_whose_ranks_all_leave_prints_nothing():
    done = elastic(3, "member.leave()")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


def test_survivors_get_one_view_and_the_job_succeeds():
    program = "if rank == 2: die()\nprint(*member.view())\nmember.leave()"
    done = elastic(4, program, least=2)
    assert done.returncode == 0, done.stderr
    progress = "{0: {0: 100}, 1: {0: 101}, 3: {0: 103}}"
    views = {re.sub(r"^\[\d\] ", "", line) for line in done.stdout.splitlines()}
    assert len(views) == 1 and re.fullmatch(rf"\[0, 1, 3\] [0-9a-f]{{64}} {re.escape(progress)}", views.pop())
    first, second = done.stderr.splitlines()
    assert first == "horo run: rank 2 died (signal 9 (SIGKILL)); epoch 1 has ranks 0, 1, 3 as ranks 0, 1, 2"
    assert re.fullmatch(r"horo run: epoch 1 runs on all 3 members after \d+ ms", second)


def test_each_epoch_has_a_secret_of_its_own():
    program = """
if rank == 3: die()
first = member.view()
if rank == 2: die()
second = member.view()
print(*first[0], *second[0], first[1] != second[1])
member.leave()
"""
    done = elastic(4, program)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] 0 1 2 0 1 True", "[1] 0 1 2 0 1 True"]


def test_a_rank_has_its_own_end_of_its_socket_and_no_other():
    program = """
paths = [f'/proc/self/fd/{fd}' for fd in os.listdir('/proc/self/fd')]
links = [os.readlink(path) for path in paths if os.path.islink(path)]  # the listing's own descriptor is closed
print(sum(link.startswith('socket:') for link in links), os.environ['HORO_MIN_NP'])
member.leave()
"""
    done = elastic(3, program, least=2)
    assert sorted(done.stdout.splitlines()) == ["[0] 1 2", "[1] 1 2", "[2] 1 2"], done.stderr


def test_a_failed_rank_leaves_with_its_text_and_the_others_go_on():
    program = r"""
if rank == 1:
    member.leave(True, b'ValueError: \x1b[31mno')
    sys.exit(1)
kind, fields = member.receive(FREEZE)
print(fields[13:].decode().replace('\x1b', ''))
member.frozen({})
member.view()
member.leave()
"""
    done = elastic(3, program)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines())[0] == "[0] rank 1 failed: ValueError: [31mno"
    told = "rank 1 failed (ValueError: \\x1b[31mno); epoch 1 has ranks 0, 2 as ranks 0, 1"
    assert f"horo run: {told}\n" in done.stderr


def test_a_failure_of_all_ranks_is_the_failure_of_the_job():
    done = elastic(2, "member.leave(True, b'ValueError: no')\nraise SystemExit(5)")
    assert done.returncode == 5
    assert "failed first: exit code 5" in done.stderr


def test_the_exit_code_of_the_survivors_is_the_jobs():
    done = elastic(3, "if rank == 2: die()\nmember.view()\nmember.leave()\nsys.exit(6 if rank == 1 else 0)")
    assert done.returncode == 6
    assert "rank 1 on host" in done.stderr and "failed first: exit code 6" in done.stderr
    assert "rank 2: signal 9 (SIGKILL); the job went on without it" in done.stderr


def test_a_job_of_too_few_ranks_ends_at_once_and_its_ranks_read_why():
    program = """
if rank: die()
while True:
    kind, fields = member.receive(FREEZE, EVICTED)
    if kind == EVICTED: break
    member.frozen({})
print(fields[4:].decode())
sys.exit(3)
"""
    began = time.monotonic()
    done = elastic(3, program, least=2)
    why = "rank 0 is left of 3, fewer than --min-np 2, and none can come back: start the job again"
    assert why in done.stdout and why in " ".join(done.stderr.split())  # its lines are folded
    assert done.returncode != 0 and time.monotonic() - began < 30


def test_a_rank_that_does_not_end_with_its_job_is_ended():
    program = "if rank: die()\nmember.receive(FREEZE)\nmember.frozen({})\nsignal.pause()"
    done = elastic(3, program, least=2, options=("--park-timeout", "0.2"))
    assert done.returncode != 0
    assert "rank 0 did not end within 0.2 s of the end of the job (--park-timeout): SIGTERM" in done.stderr


def test_a_rank_that_has_left_in_good_order_writes_its_results_after_the_end_of_its_job():
    program = """
if rank == 0:
    member.leave()
    print('left', flush=True)
    time.sleep(1.5)
    print('written', flush=True)
    sys.exit(0)
time.sleep(0.5)
if rank == 1: die()
member.receive(FREEZE)
member.frozen({})
print(member.text(EVICTED))
"""
    done = elastic(3, program, least=3, options=("--park-timeout", "0.3"))
    assert "[0] written\n" in done.stdout and done.returncode != 0, done.stderr


def test_a_stopped_rank_is_evicted_and_killed_when_the_others_have_ended():
    program = """
print(f'pid={os.getpid()}')
if rank == 1: die(signal.SIGSTOP)
print('members', *member.view()[0])
member.leave()
"""
    done = elastic(3, program, options=("--evict-after", "0.3"))
    assert done.returncode == 0, done.stderr
    assert "[0] members 0 2\n" in done.stdout and "[2] members 0 2\n" in done.stdout
    told = "rank 1 is stopped; if it does not continue within 300 ms, it is evicted when another rank waits for it"
    assert f"horo run: {told}\n" in done.stderr
    assert "horo run: rank 1 is evicted: it was stopped for 300 ms\n" in done.stderr
    assert all_end_soon(pids_in(done.stdout))


def test_an_evicted_rank_that_continues_reads_why():
    program = """
print(f'pid={os.getpid()}', flush=True)
if rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
    print(member.text(EVICTED), flush=True)
else:
    print('members', *member.view()[0], flush=True)
    signal.sigwait([signal.SIGUSR1])
member.leave()
"""
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
    job, out = start(2, block + program, ("--min-np", "1", "--evict-after", "0.3"))
    lines = sorted(out.readline() for _ in range(3))
    assert lines[0] == "[0] members 0\n"
    evicted = pids_in(lines[2])[0]
    subprocess.run(["kill", "-CONT", str(evicted)], check=True)
    assert "[1] rank 1 was evicted: it was stopped for 300 ms" in out.readline()
    job.send_signal(signal.SIGUSR1)
    _, errors = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 0, errors


def test_a_rank_that_continues_in_time_stays():
    program = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print(f'pid={os.getpid()}', flush=True)
if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)
signal.sigwait([signal.SIGUSR1])
member.leave()
"""
    job, out = start(2, program, ("--min-np", "1", "--evict-after", "300"))
    pids = {line[:3]: pids_in(line)[0] for line in (out.readline(), out.readline())}
    assert "rank 1 is stopped" in job.stderr.readline()
    subprocess.run(["kill", "-CONT", str(pids["[1]"])], check=True)
    assert job.stderr.readline() == "horo run: rank 1 continues\n"
    job.send_signal(signal.SIGUSR1)
    _, errors = job.communicate(timeout=DEADLINE_S)
    assert (job.returncode, errors) == (0, "")


def processes_of(job):
    """The guard and the ranks."""
    found, parents = [], {job.pid}
    while parents:
        lists = [pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split() for pid in parents]
        parents = {int(pid) for pids in lists for pid in pids}
        found += sorted(parents)
    return found


PAUSED = """
print(f'pid={os.getpid()}', flush=True)
if rank == 2: die()
kind, _ = member.receive(FREEZE)
if rank == 1: signal.sigwait([signal.SIGUSR1])
member.frozen({})
print(*member.view()[0], flush=True)
member.leave()
"""


@pytest.mark.parametrize("is_whole", [False, True], ids=["the_guard", "the_whole_job"])
def test_a_pause_is_no_silence_of_a_rank(is_whole):
    """The answer of rank 1 lies in the socket, or comes a moment after the guard goes on."""
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
    job, out = start(3, block + PAUSED, ("--min-np", "1", "--evict-after", "1"))
    pids = {line[:3]: pids_in(line)[0] for line in (out.readline() for _ in range(3))}
    time.sleep(0.7)
    guard, *ranks = processes_of(job)
    paused = [guard, *ranks] if is_whole else [guard]
    for pid in paused:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(0.1)
    os.kill(pids["[1]"], signal.SIGUSR1)
    time.sleep(1.5)
    for pid in paused:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)
    output, errors = job.communicate(timeout=DEADLINE_S)
    assert sorted(output.splitlines()) == ["[0] 0 1", "[1] 0 1"] and job.returncode == 0, errors


def test_a_rank_that_sends_garbage_is_killed_and_the_others_go_on():
    program = """
if rank == 1:
    member.socket.send(b'garbage')
    signal.pause()
print('members', *member.view()[0])
member.leave()
"""
    done = elastic(2, program)
    assert done.returncode == 0 and done.stdout == "[0] members 0\n"
    assert "horo run: rank 1 is killed: a message of version 103, expected 6" in done.stderr


def test_three_deaths_at_once_are_survived():
    program = """
if rank in (1, 2, 4): die()
while True:
    members = member.view()[0]
    if members == [0, 3]: break
print(*members)
member.leave()
"""
    done = elastic(5, program, least=2)
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == ["[0] 0 3", "[3] 0 3"], done.stderr


def test_a_death_during_the_installation_is_survived():
    program = """
if rank == 3: die()
if rank == 2: Member.installed = lambda self, epoch: die()
while member.view()[0] != [0, 1]: pass
member.leave()
"""
    done = elastic(4, program)
    assert done.returncode == 0, done.stderr
    assert re.search(r"epoch 2 runs on all 2 members after \d+ ms", done.stderr)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_job_ends_and_tells_no_story(number):
    job, out = start(2, "print('ready', flush=True)\nsignal.pause()", ("--min-np", "1", "--grace", "0"))
    assert out.readline() and out.readline()
    job.send_signal(number)
    _, errors = job.communicate(timeout=DEADLINE_S)
    assert job.returncode in (1, 128 + number) and "horo run" not in errors


def test_ctrl_c_is_no_loss_that_the_job_survives():
    program = """
def leave(*_):
    member.leave()
    os._exit(0)
signal.signal(signal.SIGINT, leave if rank == 0 else signal.SIG_DFL)
if rank == 2: die()
print('members', *member.view()[0], flush=True)
signal.pause()
"""
    job, out = start(3, program, ("--min-np", "1"))
    assert [out.readline()[4:] for _ in range(2)] == ["members 0 1\n"] * 2
    job.send_signal(signal.SIGINT)
    _, errors = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 128 + signal.SIGINT, errors


def test_the_socket_is_of_elastic_jobs_alone():
    program = "print([name for name in os.environ if name in ('HORO_GUARD_FD', 'HORO_MIN_NP')])"
    done = run(1, program, env={"HORO_GUARD_FD": "7", "HORO_MIN_NP": "1"})
    assert done.stdout == "[0] []\n"


def test_invalid_options_are_refused_with_the_remedy():
    for options, text in {
        ("--min-np", "5"): "--min-np 5: expected 1 to the number of ranks at the start, -n 2",
        ("--min-np", "0"): "--min-np 0: expected 1 to",
        ("--min-np", "1", "--max-np", "1"): "--max-np 1: expected at least the number of ranks at the start, -n 2",
        ("--max-num-proc", "4"): "--max-np: expected --min-np too",
        ("--evict-after", "4"): "--evict-after: expected --min-np too",
        ("--park-timeout", "4"): "--park-timeout: expected --min-np too",
        ("--grace", "-1"): "--grace: expected 0 to 86400 seconds",
        ("--min-np", "1", "--grace", "-1"): "--grace: expected 0 to 86400 seconds",
        ("--restarts", "1"): "--restarts: expected --min-np too",
        ("--cool-down", "1"): "--cool-down: expected --min-np too",
        ("--min-np", "1", "--restarts", "-1"): "--restarts -1: expected 0 or more",
        ("--min-np", "1", "--max-np", "1025"): "--max-np 1025: expected at most 1024 ranks on one host",
    }.items():
        done = horo("run", "-n", 2, *options, "true")
        assert done.returncode == 2 and text in done.stderr, done.stderr
    assert horo("run", "-n", 2, "--min-num-proc", 1, "--max-num-proc", 8, "true").returncode == 0
