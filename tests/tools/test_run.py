"""horo run: what it prefixes, what it returns, whom it ends, and what it lets nobody see."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE_S = 30


def executable():
    given = os.environ.get("HORO_EXE")
    places = [given] if given else [ROOT / ".venv/bin/horo", ROOT / "build/release/tools/horo/horo"]
    found = next((str(place) for place in places if shutil.which(str(place))), None)
    assert found, f"no horo executable at any of {[str(place) for place in places]}: build it, or set HORO_EXE"
    return found


HORO = executable()


def command(ranks, program):
    return [HORO, "run", "-n", str(ranks), sys.executable, "-c", "import os, signal, sys, time\n" + program]


def clean_environment(extra=()):
    return {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | dict(extra)


def run(ranks, program, env=()):
    return subprocess.run(
        command(ranks, program), capture_output=True, text=True, timeout=DEADLINE_S, env=clean_environment(env)
    )


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pids_in(text):
    return [int(pid) for pid in re.findall(r"pid=(\d+)", text)]


def all_end_soon(pids):
    """Whether none of them runs any more; an orphan killed just now may need a moment."""
    end = time.monotonic() + 5
    while time.monotonic() < end and any(map(is_running, pids)):
        os.sched_yield()
    return not any(map(is_running, pids))


def test_every_line_carries_its_rank_on_the_stream_it_was_written_to():
    done = run(3, "r = os.environ['HORO_RANK']; print('out', r); print('more'); print('err', r, file=sys.stderr)")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == sorted(f"[{r}] {t}" for r in range(3) for t in (f"out {r}", "more"))
    assert sorted(done.stderr.splitlines()) == [f"[{r}] err {r}" for r in range(3)]


def test_a_last_line_without_an_end_is_not_lost():
    assert run(1, "sys.stdout.write('a\\nb')").stdout == "[0] a\n[0] b\n"


def test_carriage_returns_pass_and_begin_a_new_prefix():
    done = subprocess.run(
        command(1, "sys.stdout.buffer.write(b'10%\\r20%\\r\\nend\\n')"), capture_output=True, timeout=DEADLINE_S
    )
    assert done.stdout == b"[0] 10%\r[0] 20%\r\n[0] end\n"


def test_a_very_long_line_is_cut_and_loses_no_byte():
    lines = run(1, "print('x' * 1_000_000)").stdout.splitlines()
    assert len(lines) > 1 and all(len(line) <= 70_000 for line in lines)
    assert sum(line.count("x") for line in lines) == 1_000_000


def test_much_output_of_many_ranks_is_complete_and_unmixed():
    done = run(4, "for i in range(20000): print(os.environ['HORO_RANK'] * 40, i)")
    for rank in range(4):
        mine = [line for line in done.stdout.splitlines() if line.startswith(f"[{rank}]")]
        assert mine == [f"[{rank}] {str(rank) * 40} {i}" for i in range(20000)]


def test_every_rank_gets_its_place_in_the_world():
    names = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "ADDR"]
    done = run(2, f"print(*(os.environ['HORO_' + name] for name in {names}))")
    found = [line.split() for line in sorted(done.stdout.splitlines())]
    assert [line[:5] for line in found] == [["[0]", "0", "2", "0", "2"], ["[1]", "1", "2", "1", "2"]]
    assert found[0][5] == found[1][5] and re.fullmatch(r"127\.0\.0\.1:\d+", found[0][5])


def test_threads_are_shared_out_unless_the_user_said_how_many():
    program = "print(os.environ['OMP_NUM_THREADS'], os.environ['PYTHONUNBUFFERED'])"
    fair = max(1, len(os.sched_getaffinity(0)) // 2)
    assert set(run(2, program).stdout.splitlines()) == {f"[0] {fair} 1", f"[1] {fair} 1"}
    assert "[0] 7 1" in run(2, program, {"OMP_NUM_THREADS": "7"}).stdout


def test_the_key_is_the_same_for_all_new_in_each_job_and_in_no_variable_or_command_line():
    program = """
fd = int(os.environ['HORO_KEY_FD'])
key = os.pread(fd, 100, 0)
assert len(key) == 32
seen = open('/proc/self/environ', 'rb').read() + open('/proc/self/cmdline', 'rb').read()
seen += open(f'/proc/{os.getppid()}/environ', 'rb').read() + open(f'/proc/{os.getppid()}/cmdline', 'rb').read()
assert key not in seen and key.hex().encode() not in seen.lower()
try:
    os.pwrite(fd, b'0', 0)
except PermissionError:
    print(key.hex())
"""
    jobs = [{line.split()[1] for line in run(2, program).stdout.splitlines()} for _ in range(2)]
    assert [len(job) for job in jobs] == [1, 1] and jobs[0] != jobs[1]


def test_the_first_failure_decides_the_exit_code_and_is_named():
    done = run(3, "sys.exit(7 if os.environ['HORO_RANK'] == '1' else 0)")
    assert done.returncode == 7
    assert "failed first: exit code 7" in done.stderr


def test_a_signal_becomes_128_and_its_number():
    done = run(2, "os.environ['HORO_RANK'] == '1' and os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == 128 + signal.SIGKILL
    assert "failed first: signal 9" in done.stderr


def test_the_others_have_time_to_end_by_themselves():
    done = run(2, "os.environ['HORO_RANK'] == '1' and sys.exit(3)\ntime.sleep(1)\nprint('done by myself')")
    assert done.returncode == 3 and "[0] done by myself" in done.stdout


def test_the_others_are_told_and_then_killed():
    begin = time.monotonic()
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
    assert 7.5 < time.monotonic() - begin < 20  # 5 s until they are told, 3 s until they are killed
    assert all_end_soon(pids_in(done.stdout))


HELPER = "import subprocess; h = subprocess.Popen(['sleep', '1000']); print(f'pid={h.pid}', f'pid={os.getpid()}')\n"


@pytest.mark.parametrize("end", ["", "sys.exit(1)", "os.kill(os.getpid(), signal.SIGSEGV)"])
def test_helpers_of_a_rank_do_not_outlive_it(end):
    done = run(2, HELPER + end)
    pids = pids_in(done.stdout)
    assert len(pids) == 4 and all_end_soon(pids)


def start_and_read(program, lines):
    """A running job that has said so many lines, and what they were."""
    job = subprocess.Popen(command(2, program), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return job, "".join(job.stdout.readline() for _ in range(lines))


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


def test_ranks_do_not_outlive_a_launcher_that_is_killed():
    job, first = start_and_read("print(f'pid={os.getpid()}')\nwhile True: signal.pause()", 2)
    job.kill()
    job.communicate(timeout=DEADLINE_S)
    assert len(pids_in(first)) == 2 and all_end_soon(pids_in(first))


def test_a_reader_that_goes_away_ends_the_job():
    job, first = start_and_read("print(f'pid={os.getpid()}')\nwhile True: print('x')", 20)
    job.stdout.close()
    job.stderr.read()
    assert job.wait(timeout=DEADLINE_S) == 128 + signal.SIGPIPE and all_end_soon(pids_in(first))


def test_a_program_that_is_not_there_is_127_and_named():
    done = subprocess.run([HORO, "run", "-n", "2", "no-such-program"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 127 and '"no-such-program"' in done.stderr


@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_the_programs_own_options_are_left_alone(dashes):
    arguments = ["-n", "5", "--help", "--", "x"]
    command = [HORO, "run", "-n", "1", *dashes, "printf", "%s ", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0 and done.stdout.split() == ["[0]", *arguments]


@pytest.mark.parametrize("wrong", [["-n", "0", "true"], ["-n", "2"], ["true"], ["-n", "2", "--bogus", "true"]])
def test_a_wrong_command_line_is_refused(wrong):
    done = subprocess.run([HORO, "run", *wrong], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2 and done.stderr


def test_bench_allreduce_checks_every_size_it_prints():
    sizes = ["--min", "8", "--max", "4K", "--rounds", "2"]
    done = subprocess.run([HORO, "bench", "allreduce", *sizes], capture_output=True, text=True, timeout=60)
    rows = [line.split() for line in done.stdout.splitlines() if line[:1] == " " and line.split()[0].isdigit()]
    assert done.returncode == 0, done.stdout + done.stderr
    assert [int(row[0]) for row in rows] == [8 << i for i in range(10)] and all(row[8] == "0" for row in rows)


def test_bench_wire_matches_the_formula_and_the_kernel():
    done = subprocess.run([HORO, "bench", "wire", "--ranks", "2,3"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.count(" ok") == 8, done.stdout + done.stderr


def test_bench_agree_sends_no_names_in_the_steady_state():
    small = ["--ranks", "2", "--tensors", "100", "--steps", "10"]
    done = subprocess.run([HORO, "bench", "agree", *small], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "messages with names in all these steps 0," in done.stdout
