"""horo run: it reports the first failure at the end, and kills ranks that do not end."""

import signal
import socket

import pytest
from launching import DEADLINE_S, all_end_soon, horo, pids_in, run, start_and_read


def test_the_first_failure_decides_the_exit_code_and_is_named():
    done = run(3, "sys.exit(7 if os.environ['HORO_RANK'] == '1' else 0)")
    assert done.returncode == 7
    assert f"rank 1 on host {socket.gethostname()} failed first: exit code 7" in done.stderr


@pytest.mark.parametrize(
    "end, code, reason",
    [
        ("sys.exit(3)", 3, "failed first: exit code 3"),
        ("horo.shutdown(); sys.exit(3)", 3, "failed first: exit code 3"),
        ("os._exit(3)", 3, "failed first: exit code 3"),
        ("sys.exit(0)", 1, "ended first: exit code 0, while other ranks still needed it"),
    ],
)
def test_a_rank_that_exits_while_others_wait_for_it_is_named(end, code, reason):
    program = f"""
import horo, horo.numpy, numpy
horo.init()
horo.numpy.allreduce(numpy.ones(4), name='first')
if rank == 1: {end}
horo.numpy.allreduce(numpy.ones(4), name='of rank 2')
"""
    done = run(3, program)
    assert f"rank 1 on host {socket.gethostname()} {reason}" in done.stderr, done.stderr
    assert done.returncode == code


def test_a_signal_becomes_128_and_its_number():
    done = run(2, "os.environ['HORO_RANK'] == '1' and os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == 128 + signal.SIGKILL
    assert "rank 1 on host" in done.stderr and "failed first: signal 9 (SIGKILL)" in done.stderr


def test_the_others_have_time_to_end_by_themselves():
    done = run(2, "os.environ['HORO_RANK'] == '1' and sys.exit(3)\ntime.sleep(1)\nprint('done by myself')")
    assert done.returncode == 3 and "[0] done by myself" in done.stdout


def test_the_other_ranks_get_sigterm_and_are_then_killed():
    done = run(
        3,
        """
rank = os.environ['HORO_RANK']
print(f'pid={os.getpid()}')
if rank == '0': signal.signal(signal.SIGTERM, lambda *_: print('told'))
if rank == '2': sys.exit(4)
while True: time.sleep(1)
""",
    )
    assert done.returncode == 4 and "[0] told" in done.stdout
    assert "ranks 0, 1 did not end within 5 s of the first failure: SIGTERM" in done.stderr
    assert "rank 0 did not end within 3 s of SIGTERM: killed" in done.stderr
    assert all_end_soon(pids_in(done.stdout))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_reaches_every_rank(number):
    program = f"def got(*_): print('got it', flush=True); sys.exit(9)\nsignal.signal({int(number)}, got)\n"
    job, _ = start_and_read(program + "print('ready'); signal.pause()", 2)
    job.send_signal(number)
    out, _ = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 9 and sorted(out.splitlines()) == ["[0] got it", "[1] got it"]


def test_a_second_signal_kills():
    stubborn = "signal.signal(signal.SIGINT, lambda *_: print('no'))\n"
    job, first = start_and_read(stubborn + "print(f'pid={os.getpid()}')\nwhile True: signal.pause()", 2)
    job.send_signal(signal.SIGINT)
    assert {job.stdout.readline(), job.stdout.readline()} == {"[0] no\n", "[1] no\n"}
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 128 + signal.SIGKILL and all_end_soon(pids_in(first))


def test_the_cause_is_named_even_if_that_rank_ends_last():
    """Rank 2 raises, and ends after the others: only their error messages show that it failed first."""
    program = """
class PeerLost(RuntimeError): __module__ = 'horo.errors'
if rank != 2: raise PeerLost(f'rank {rank}: rank 2 gave up')
peers = [int(p) for p in os.listdir('/proc') if p.isdigit()]
def is_peer(p):
    try:
        fields = open(f'/proc/{p}/stat').read().rpartition(')')[2].split()
        return int(fields[1]) == os.getppid() and p != os.getpid() and fields[0] != 'Z'
    except OSError:
        return False
while any(is_peer(p) for p in peers): time.sleep(0.01)
raise ValueError('the data ran out')
"""
    done = run(3, program)
    assert done.returncode == 1
    assert "failed first: ValueError: the data ran out (exit code 1)" in done.stderr and "rank 2 on host" in done.stderr
    assert "rank 0: horo.errors.PeerLost: rank 0: rank 2 gave up (exit code 1)" in done.stderr


def test_the_last_lines_are_quoted_once_at_the_end():
    done = run(2, "for i in range(30): print('line', i)\nsys.exit(3 if rank else 0)")
    block = done.stderr.partition("failed first")[2]
    assert [f"    | line {i}" for i in range(20, 30)] == [line for line in block.splitlines() if "|" in line]
    assert "rank 0: exit code 0" in block and done.stderr.count("failed first") == 1


def test_a_job_without_failures_prints_nothing():
    assert run(3, "print('x')").stderr == ""


def test_an_interrupted_job_reports_no_failed_rank():
    job, _ = start_and_read("print('ready')\ntime.sleep(1000)", 2)
    job.send_signal(signal.SIGTERM)
    _, errors = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 128 + signal.SIGTERM and errors == ""


def test_user_signals_reach_the_ranks_and_end_nothing():
    program = "got = []\nsignal.signal(signal.SIGUSR1, lambda *_: got.append(1))\nprint('ready')\n"
    program += "while not got: time.sleep(0.01)\nprint('got it')\nprint('end')"  # pause() would miss an early signal
    job, _ = start_and_read(program, 2)
    job.send_signal(signal.SIGUSR1)
    out, _ = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 0
    assert sorted(out.splitlines()) == ["[0] end", "[0] got it", "[1] end", "[1] got it"]


def test_a_timeout_ends_the_whole_job_with_124():
    done = run(2, "print(f'pid={os.getpid()}', flush=True)\ntime.sleep(1000)", options=["--timeout", "1.5"])
    assert done.returncode == 124 and all_end_soon(pids_in(done.stdout))
    assert "the job did not end within 1.5 s (--timeout); still running: ranks 0, 1" in done.stderr


def test_the_timeout_does_not_affect_a_job_that_ends_before():
    assert run(1, "", options=["--timeout", "1000"]).returncode == 0


def test_a_missing_program_is_127_and_named():
    done = horo("run", "-n", 2, "no-such-program")
    assert done.returncode == 127 and 'cannot start "no-such-program"' in done.stderr and "PATH" in done.stderr


def test_a_folder_and_a_missing_interpreter_are_named(tmp_path):
    script = tmp_path / "tool"
    script.write_text("#!/no/such/python -u\n")
    script.chmod(0o755)
    done = horo("run", "-n", 2, script)
    assert done.returncode == 127 and "first line: /no/such/python -u" in " ".join(done.stderr.split())
    done = horo("run", "-n", 2, tmp_path)
    assert done.returncode == 126 and "it is a folder" in done.stderr


def test_a_file_that_is_not_executable_is_126_with_a_remedy(tmp_path):
    script = tmp_path / "train"
    script.write_text("print(1)")
    done = horo("run", "-n", 2, script)
    assert done.returncode == 126 and "chmod +x" in done.stderr and f"python {script}" in done.stderr


def test_a_script_whose_interpreter_is_missing_is_127(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("#!/no/such/python\n")
    script.chmod(0o755)
    done = horo("run", "-n", 2, script)
    assert done.returncode == 127 and "interpreter" in done.stderr
