"""horo run: the ranks' output is complete, prefixed with their number, and optionally stored in files."""

import os
import re
import signal
import subprocess

import pytest
from launching import DEADLINE_S, all_end_soon, command, pids_in, run, start_and_read


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


TWO_STREAMS = "for i in range(3000): os.write(1 + i % 2, f'{i} {\"x\" * (i % 300)} end {i}\\n'.encode())"


def test_lines_of_both_streams_stay_whole_in_one_pipe():
    done = subprocess.run(
        command(4, TWO_STREAMS), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 12000 and all(re.fullmatch(r"\[[0-3]\] (\d+) x* end \1", line) for line in lines)


def test_a_slow_reader_loses_nothing_and_blocks_the_ranks():
    """The job writes many MiB, which fill all buffers before the test reads."""
    job, first = start_and_read("for i in range(200000): print(i, 'x' * 80)", 1, ranks=1)
    rest = job.stdout.read()
    assert job.wait(timeout=DEADLINE_S) == 0
    assert [int(line.split()[1]) for line in (first + rest).splitlines()] == list(range(200000))


@pytest.mark.parametrize("option", ["--output-dir", "--output-filename"])
def test_files_have_each_ranks_bytes_as_it_wrote_them(tmp_path, option):
    folder = tmp_path / "made" / "here"
    done = run(2, "print('out', rank); print('err', rank, end='', file=sys.stderr)", options=[option, folder])
    assert done.returncode == 0 and "[1] out 1" in done.stdout
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    outs = {f"rank.{r}.out": f"out {r}\n" for r in (0, 1)}
    assert texts == outs | {f"rank.{r}.err": f"err {r}" for r in (0, 1)}


def test_an_invalid_folder_for_files_is_refused():
    done = run(1, "", options=["--output-dir", "/dev/null/x"])
    assert done.returncode == 2 and "--output-dir /dev/null/x: Not a directory" in done.stderr


def test_a_full_disk_costs_the_file_and_not_the_job(tmp_path):
    words = command(1, "print('x' * 3000, flush=True); print('again')", ["--output-dir", str(tmp_path)])
    limited = ["bash", "-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "bash", *words]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0 and "[0] xxx" in done.stdout and "[0] again\n" in done.stdout, done.stderr
    assert "incomplete: File too large" in done.stdout


def link(folder):
    (folder / "rank.0.out").symlink_to("../precious")


def hard_link(folder):
    (folder / "rank.0.out").hardlink_to(folder.parent / "precious")


def pipe(folder):
    os.mkfifo(folder / "rank.0.out")


@pytest.mark.parametrize(
    "planted, why",
    [(link, "is a link, which is not followed"), (hard_link, "several names"), (pipe, "neither a regular")],
)
def test_what_another_user_may_have_planted_is_not_written(tmp_path, planted, why):
    (tmp_path / "precious").write_text("precious")
    folder = tmp_path / "shared"
    folder.mkdir()
    planted(folder)
    done = run(1, "print('hello')", options=["--output-dir", folder])
    said = " ".join(done.stderr.split())
    assert done.returncode == 1 and why in said and f"--output-dir: {folder}/rank.0.out: " in said
    assert (tmp_path / "precious").read_text() == "precious"


def test_no_rank_starts_if_the_file_of_another_cannot_be_made(tmp_path):
    os.mkfifo(tmp_path / "rank.1.err")
    done = run(2, f"open({str(tmp_path / 'started')!r}, 'w')", options=["--output-dir", tmp_path])
    assert done.returncode == 1 and "rank.1.err: " in " ".join(done.stderr.split())
    assert not (tmp_path / "started").exists()


def test_a_folder_of_files_may_be_a_link_of_this_user(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert run(1, "print('hello')", options=["--output-dir", tmp_path / "link"]).returncode == 0
    assert (tmp_path / "real" / "rank.0.out").read_text() == "hello\n"


def test_a_reader_that_closes_its_pipe_ends_the_job():
    job, first = start_and_read("print(f'pid={os.getpid()}')\nwhile True: print('x')", 20)
    job.stdout.close()
    job.stderr.read()
    assert job.wait(timeout=DEADLINE_S) == 128 + signal.SIGPIPE and all_end_soon(pids_in(first))
