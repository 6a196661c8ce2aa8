"""horo run: no process of a job outlives it, for every kind of end."""

import os
import pathlib
import signal

import pytest
from launching import DEADLINE_S, all_end_soon, parent_of, pids_in, run, start_and_read

HELPER = "h = subprocess.Popen(['sleep', '1000']); print(f'pid={h.pid}', f'pid={os.getpid()}')\n"


@pytest.mark.parametrize("end", ["", "sys.exit(1)", "os.kill(os.getpid(), signal.SIGSEGV)"])
def test_helpers_of_a_rank_do_not_outlive_it(end):
    done = run(2, HELPER + end)
    pids = pids_in(done.stdout)
    assert len(pids) == 4 and all_end_soon(pids)


# A grandchild in a separate session, whose parent has ended: not in a rank's process group, not its descendant.
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    print(f'pid={os.getpid()}', flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True: time.sleep(1000)
os.wait()
print(f'pid={os.getpid()}', flush=True)
"""
WAITS = "while True: signal.pause()"


@pytest.mark.parametrize("end", ["", "sys.exit(1)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_daemons_of_a_rank_end_with_the_job(end):
    done = run(2, DAEMON + end)
    pids = pids_in(done.stdout)
    assert len(pids) == 4 and all_end_soon(pids)


def test_nothing_outlives_a_launcher_that_is_killed():
    job, first = start_and_read(DAEMON + WAITS, 4)
    job.kill()
    job.communicate(timeout=DEADLINE_S)
    assert len(pids_in(first)) == 4 and all_end_soon(pids_in(first))


def test_nothing_outlives_a_guard_that_is_killed():
    program = DAEMON + "print(f'guard={os.getppid()}')\n" + WAITS
    job, first = start_and_read(program, 6)
    guard = int(first.partition("guard=")[2].split()[0])
    assert parent_of(guard) == job.pid
    os.kill(guard, signal.SIGKILL)
    _, errors = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 128 + signal.SIGKILL and "its guard process was ended by signal 9" in errors
    assert len(pids_in(first)) == 4 and all_end_soon(pids_in(first))


def test_nothing_outlives_a_launcher_that_is_killed_while_its_output_is_not_read():
    job, first = start_and_read(DAEMON + "while True: print('x' * 1000)", 4)
    job.kill()
    job.wait(timeout=DEADLINE_S)
    assert all_end_soon(pids_in(first))


def test_a_second_signal_ends_a_job_whose_output_is_not_read():
    job, first = start_and_read("print(f'pid={os.getpid()}')\nwhile True: print('x' * 1000)", 1, ranks=1)
    job.send_signal(signal.SIGUSR2)  # ends the rank, whose output has not been read
    assert all_end_soon(pids_in(first))
    job.send_signal(signal.SIGINT)
    job.send_signal(signal.SIGTERM)
    job.wait(timeout=DEADLINE_S)


def test_no_file_and_no_segment_is_left_by_a_killed_job(tmp_path):
    def names():
        folders = {pathlib.Path("/dev/shm"): "*horo*", tmp_path: "**/*"}
        return {str(path) for folder, what in folders.items() for path in folder.glob(what) if not path.is_dir()}

    before = names()
    env = {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    job, _ = start_and_read("print('ready')\n" + WAITS, 2, env=env)
    assert names() > before  # the socket of horo status
    job.kill()
    job.communicate(timeout=DEADLINE_S)
    assert names() <= before
