"""horo scale: measures scripts of known times, and says plainly what it cannot measure."""

import html
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from launching import DEADLINE_S, HORO, clean_environment, horo

WRITER = pathlib.Path(__file__).with_name("step_writer.py")
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m"


def scale(folder, *arguments, sizes="1,2", rounds=1, options=(), env=()):
    """A measurement of runs of half a second, which the script needs no time for."""
    quick = ["--seconds", "0.5", "--rounds", rounds, "--out", folder]
    return horo("scale", "run", "-n", sizes, *quick, *options, "--", sys.executable, WRITER, *arguments, env=env)


def read(folder):
    return json.loads((folder / "scale.json").read_text())


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scale") / "out"
    done = scale(folder, HOSTILE, sizes="1,2,3", rounds=2, env={"SECRET": "s3cr3t"}.items())
    assert done.returncode == 0, done.stderr
    return folder, done


def test_efficiency_is_that_of_the_known_times(measured):
    folder, _ = measured
    one, two, three = read(folder)["table"]
    assert one["efficiency_ppm"] == 1_000_000
    assert two["efficiency_ppm"] == three["efficiency_ppm"] == round(1e6 * 50 / 56)
    assert two["lost_ns"]["skew"] == 2_000_000
    assert two["lost_ns"]["slower compute"] == 2_000_000
    assert two["lost_ns"]["transfer"] == 2_000_000


def test_losses_and_bars_add_up_exactly(measured):
    for size in read(measured[0])["table"]:
        assert sum(size["lost_ns"].values()) == size["step_ns"] - size["ideal_ns"]
        assert sum(size["bars_ns"].values()) == size["step_ns"]
        for rank in size["by_rank"]:
            assert sum(rank["bars_ns"].values()) == rank["step_ns"]


def test_the_late_rank_is_named(measured):
    folder, done = measured
    late = read(folder)["table"][2]["late"]
    assert (late["rank"], late["when"], late["bar"], late["excess_ns"]) == (2, "always", "forward", 4_000_000)
    assert late["text"] in " ".join(done.stdout.split())
    assert "100 % of that for rank 2: it is late in nearly all steps, by 4.00 ms" in late["text"]


def test_rounds_are_interleaved_and_each_run_has_a_folder(measured):
    folder, done = measured
    runs = [(run["round"], run["ranks"]) for run in read(folder)["runs"]]
    assert runs == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
    assert "3 sizes x 2 rounds of 0.5 s behind a warm-up of 10 steps and 0.1 s: about 3.3 s" in done.stderr
    for round_, ranks in runs:
        run = folder / "runs" / f"round{round_}_ranks{ranks}"
        assert (run / "output.txt").read_text().count(f"cwd {run}\n") == ranks


def test_the_document_has_no_environment_and_integers_alone(measured):
    text = (measured[0] / "scale.json").read_text()
    assert "s3cr3t" not in text and "HORO_STEPS" not in text
    assert not re.search(r"[:\[,]-?\d+[.e]", text)


def test_the_report_is_equal_byte_for_byte(measured):
    folder, done = measured
    page = (folder / "scale.html").read_bytes()
    (folder / "scale.html").unlink()
    again = horo("scale", "report", folder)
    assert again.returncode == 0, again.stderr
    assert again.stdout == done.stdout
    assert (folder / "scale.html").read_bytes() == page


def test_a_hostile_argument_is_text_and_the_page_has_the_figures(measured):
    folder, done = measured
    page = (folder / "scale.html").read_text()
    assert "<img" not in page
    assert "\x1b" not in done.stdout and "\\x1b[31m" in done.stdout
    data = re.search(r'<script id="scale" type="application/json">([^<]*)</script>', page)[1]
    assert html.unescape(data) == data
    assert json.loads(data)["command"][-1] == HOSTILE
    assert json.loads(data) == {name: part for name, part in read(folder).items() if name != "runs"}


def test_a_size_that_fails_is_told_and_the_others_are_shown(tmp_path):
    done = scale(tmp_path / "out", "--fail-at", "3", sizes="1,2,3", rounds=2)
    assert done.returncode == 1
    assert "failed with 3 ranks: " in done.stdout and "no memory for 3 ranks" in done.stdout
    assert "1 and 2 are shown" in done.stdout
    assert done.stderr.count("left out") == 1
    assert [size["ranks"] for size in read(tmp_path / "out")["table"]] == [1, 2]


def test_a_script_without_horo_is_told(tmp_path):
    options = ["--first-step", "0.5", "--out", tmp_path / "out"]
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    done = horo("scale", "run", "-n", "1,2", *options, "--", *command)
    assert done.returncode == 1
    assert "no steps in 0.5 s: does the script use DistributedOptimizer or a process group?" in done.stdout
    assert len(read(tmp_path / "out")["runs"]) == 1


def test_strong_scaling_divides_the_samples(tmp_path):
    done = scale(tmp_path / "out", "--divided", options=["--strong"])
    assert done.returncode == 0, done.stderr
    assert "64 samples a step at every size: strong scaling" in done.stdout
    two = read(tmp_path / "out")["table"][1]
    assert two["step_ns"] == (23 + 4 + 6) * 1_000_000 and two["ideal_ns"] == 25_000_000


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (["--divided"], [], "is measured with --strong"),
        ([], ["--strong"], "is measured without --strong"),
    ],
)
def test_samples_that_do_not_agree_end_the_measurement(tmp_path, arguments, options, said):
    done = scale(tmp_path / "out", *arguments, sizes="1,2,3", options=options)
    assert done.returncode == 1
    assert said in " ".join(done.stdout.split())
    assert len(read(tmp_path / "out")["runs"]) == 2


def test_one_size_and_no_samples_are_told(tmp_path):
    done = scale(tmp_path / "out", "--samples", "0", sizes="2")
    assert done.returncode == 0, done.stderr
    assert "one size only" in done.stdout and "samples are not known" in done.stdout
    assert "steps/s" in done.stdout


def test_a_script_may_end_by_itself(tmp_path):
    assert scale(tmp_path / "out", "--ends", sizes="1").returncode == 0
    done = scale(tmp_path / "out", "--ends", "--steps", "12", sizes="1")
    assert done.returncode == 1
    assert "2 steps behind a warm-up of 10 steps, expected at least 5" in done.stdout


def test_more_ranks_than_cores_are_told(tmp_path):
    cores = len(os.sched_getaffinity(0))
    done = scale(tmp_path / "out", sizes=cores + 1)
    for text in (done.stdout, done.stderr):
        assert re.search(rf"{cores + 1} ranks on \d+ cores?: efficiency says nothing about larger machines", text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-n", "1,x", "--", "true"], "expected numbers of ranks from 1 to 1024"),
        (["-n", "1,2"], "expected a program, as in: horo scale run -n 1,2,4 -- python train.py"),
        (["-n", "1", "--seconds", "0", "--", "true"], "expected a number above 0"),
        (["-n", "1", "--out", str(WRITER.parent), "--", "true"], "expected a new folder, or one of horo scale"),
    ],
)
def test_wrong_words_are_refused(arguments, said):
    done = horo("scale", "run", *arguments)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_a_document_that_is_none_is_refused(tmp_path):
    assert "cannot read" in horo("scale", "report", tmp_path).stderr
    (tmp_path / "scale.json").write_text('{"format": 1}')
    done = horo("scale", "report", tmp_path)
    assert done.returncode == 2 and "it is no document of horo scale" in done.stderr
    assert not (tmp_path / "scale.html").exists()


def test_an_interrupt_ends_the_run_and_shows_what_there_is(tmp_path):
    command = [HORO, "scale", "run", "-n", "1,2", "--first-step", "60", "--out", tmp_path / "out", "--"]
    writer = [sys.executable, WRITER, "--steps", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    job = subprocess.Popen([*command, *writer], env=clean_environment(), **pipes)
    output = tmp_path / "out/runs/round1_ranks1/output.txt"
    end = time.monotonic() + DEADLINE_S
    while not (output.exists() and "cwd" in output.read_text()) and time.monotonic() < end:
        os.sched_yield()
    job.send_signal(signal.SIGINT)
    out, _ = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 128 + signal.SIGINT
    assert "interrupted: not all runs were made" in out
    assert read(tmp_path / "out")["runs"] == []
