"""State.keep(): jobs that are killed, drained, damaged and started again (docs/checkpoint.md)."""

import os
import re
import signal
import subprocess
import time

import pytest
import ranks
from test_elastic import DEADLINE_S, command, lines_of
from test_launchers import environment

GROWS, STATIC = ("--min-np", "1", "--restarts", "1"), ()
PASSES, SAMPLES = 3, 103


def run(size, folder, *arguments, options=STATIC, code=0):
    """Runs kept.py; returns the lines of the ranks and the errors."""
    words = command(size, "kept", f"folder={folder}", *arguments, options=options, deadline=DEADLINE_S)
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=2 * DEADLINE_S)
    if code is not None:
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return lines_of(done.stdout), done.stderr


def check(lines, size):
    """Each rank has ended, and has counted each sample once per pass."""
    ends = [line.split() for line in lines if line.startswith("end ")]
    assert len(ends) == size and len(set(map(str, ends))) == 1, lines
    assert ends[0][2] == "0", ends
    assert ends[0][3] == ends[0][4] == f"{float(ends[0][1])}", ends


def steps_in(folder):
    return sorted(int(name.removeprefix("step-")) for name in os.listdir(folder) if name.startswith("step-"))


def resumed(errors):
    return [int(step) for step in re.findall(r"^\[\d\] horo: resumed from step (\d+) of ", errors, re.MULTILINE)]


def test_n_ranks_save_and_m_ranks_load(run_program, tmp_path):
    most = int(os.environ.get("TEST_CHECKPOINT_RANKS", "4"))  # 8: many minutes
    addresses = " ".join(ranks.free_address() for _ in range(most + most * most))
    run_program("checkpoint_matrix", most, env={"FOLDER": str(tmp_path), "ADDRESSES": addresses})


def test_objects_that_are_not_alike_on_two_ranks(run_program, tmp_path):
    run_program("checkpoint_odd", 2, env={"FOLDER": str(tmp_path)})


def test_a_job_goes_on_with_any_number_of_ranks(tmp_path):
    folder = tmp_path / "ckpt"
    run(3, folder, "at=11", "slow=0.02", code=None)
    for size, at in ((1, 30), (4, 38)):
        lines, errors = run(size, folder, f"at={at}", "slow=0.02", code=None)
        assert len(resumed(errors)) == 1 and not any(line.startswith("end ") for line in lines), errors
    lines, errors = run(2, folder)
    assert len(resumed(errors)) == 1
    check(lines, 2)
    assert len(steps_in(folder)) == 3
    lines, errors = run(3, folder)  # nothing is left to do
    assert resumed(errors) == steps_in(folder)[-1:]
    check(lines, 3)


def test_an_older_checkpoint_is_taken_where_the_newest_is_damaged(tmp_path):
    run(2, tmp_path / "ckpt", "at=9", "bulk=9000000", "slow=0.05", "least=2", code=None)
    before = steps_in(tmp_path / "ckpt")
    newest = max((tmp_path / "ckpt").glob("step-*"))
    part = max(newest.glob("part-*"))
    with open(part, "r+b") as file:
        file.seek(-(5 << 20), os.SEEK_END)
        file.write(b"damage")
    lines, errors = run(2, tmp_path / "ckpt", "bulk=9000000")
    assert resumed(errors) == before[-2:-1], errors
    assert re.search(rf"the checkpoint {newest} is left: .*{part.name}", errors), errors
    check(lines, 2)


def test_without_a_whole_one_no_training_begins(tmp_path):
    run(2, tmp_path / "ckpt", "at=5", "slow=0.02", code=None)
    for path in (tmp_path / "ckpt").glob("step-*/index.json"):
        path.write_text(path.read_text().replace("float32", "float64"))
    lines, errors = run(2, tmp_path / "ckpt", code=1)
    assert "no checkpoint of" in errors and "resume=False" in errors, errors
    lines, errors = run(2, tmp_path / "ckpt", "resume=no")
    check(lines, 2)


def test_other_fields_are_refused_by_name(tmp_path):
    run(2, tmp_path / "ckpt", "at=5", "slow=0.02", code=None)
    _, errors = run(2, tmp_path / "ckpt", "bulk=7", code=1)
    assert re.search(r"ValueError: .*bulk.*float32\[1\]", errors), errors


def test_a_rank_that_dies_during_a_save(tmp_path):
    options = ("every=1", "bulk=4000000", "at=7", "dies=1")
    lines, errors = run(3, tmp_path / "ckpt", *options, options=GROWS)
    assert " has joined: " in errors, errors
    check(lines, 3)
    assert len(steps_in(tmp_path / "ckpt")) >= 1
    lines, errors = run(2, tmp_path / "ckpt", "bulk=4000000")
    check(lines, 2)


@pytest.mark.parametrize("dies", [0, 2])
def test_joins_and_saves_by_seconds(tmp_path, dies):
    options = ("every_s=0.05", "slow=0.01", "at=5", f"dies={dies}")
    lines, errors = run(3, tmp_path / "ckpt", *options, options=GROWS)
    assert " has joined: " in errors, errors
    check(lines, 3)


def test_a_notice_saves_behind_the_round(tmp_path):
    words = command(3, "kept", f"folder={tmp_path / 'ckpt'}", "every=100000", "slow=0.02", options=("--min-np", "1"))
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        while "runs" not in (line := job.stdout.readline()):
            assert line, job.communicate()
        job.send_signal(signal.SIGTERM)
        output, errors = job.communicate(timeout=2 * DEADLINE_S)
    assert job.returncode == 143 and "end " not in output, (output, errors)
    saved = steps_in(tmp_path / "ckpt")
    lines, errors = run(2, tmp_path / "ckpt")
    assert resumed(errors) == saved[-1:] and len(saved) == 1
    check(lines, 2)


def test_two_jobs_cannot_keep_one_folder(tmp_path):
    words = command(2, "kept", f"folder={tmp_path / 'ckpt'}", "slow=0.1", "every=1")
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        while not (tmp_path / "ckpt").exists() or not steps_in(tmp_path / "ckpt"):
            assert job.poll() is None, job.communicate()
            time.sleep(0.01)
        _, errors = run(2, tmp_path / "ckpt", "resume=no", "every=1", code=1)
        job.kill()
        job.communicate()
    assert str(tmp_path / "ckpt") in errors and "another job" in errors, errors


def test_a_folder_that_cannot_be_written_is_told_and_training_goes_on(tmp_path):
    (tmp_path / "file").write_text("")
    lines, errors = run(2, tmp_path / "file" / "ckpt")
    assert re.search(r"horo: the checkpoint of step \d+ was not written: .*file", errors), errors
    check(lines, 2)
    assert any(line.startswith("last error ") for line in lines)
    _, errors = run(2, tmp_path / "file" / "ckpt", "strict=yes", code=1)
    assert "State.keep(strict=True)" in errors
