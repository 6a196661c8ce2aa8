"""horo scale run: what it refuses, and what it says below its figures. The ranks write steps of known times."""

import os
import tempfile

from table import ROOT, by_command

SECTION = "Measuring"
REFUSED = "`horo scale run`, exit code 2, nothing is started"
NOTE = "`horo scale run`, a note below the table"
WRITER = str(ROOT / "tests/tools/step_writer.py")


def measured(run, sizes, program, options=(), code=0):
    """The notes of a measurement."""
    with tempfile.TemporaryDirectory() as folder:
        command = [run.horo, "scale", "run", "-n", sizes, "--seconds", "0.5", "--rounds", "1", "--out", f"{folder}/out"]
        done = run([*command, *options, "--", run.python, *program])
    assert done.returncode == code, done
    notes = done.stdout.partition("  note     ")[2].partition("\n  /")[0]
    return "\n".join(" ".join(note.split()) for note in notes.split("  note     "))


def refused(run, *arguments):
    done = run([run.horo, "scale", "run", *arguments])
    assert done.returncode == 2, done
    return " ".join(done.stderr.split())


@by_command(SECTION, "A script without horo", where=NOTE + "; exit code 1", do="Four lines: README.md")
def scale_without_horo(run):
    return measured(run, "1,2", ["-c", "import signal; signal.pause()"], ["--first-step", "0.5"], code=1)


@by_command(
    SECTION,
    "A script that ends before it has enough steps",
    where=NOTE + "; exit code 1",
    do="More steps, or less `--seconds`",
)
def scale_of_few_steps(run):
    return measured(run, "1,2", [WRITER, "--ends", "--steps", "12"], code=1)


@by_command(
    SECTION,
    "A number of ranks with which the script fails",
    where=NOTE + "; exit code 1",
    do="The whole output is in `scale/runs/round1_ranks2`",
    changing=((r"rank \d on host", "rank <rank> on host"),),
)
def scale_with_a_failing_size(run):
    return measured(run, "1,2", [WRITER, "--fail-at", "2"], code=1)


@by_command(SECTION, "One number of ranks", where=NOTE, do="Two or more: `-n 1,2,4`")
def scale_of_one_size(run):
    return measured(run, "1", [WRITER])


@by_command(
    SECTION,
    "More ranks than cores",
    where=NOTE,
    do="A machine with as many cores",
    changing=((r"\d+ ranks on \d+ cores?", "<ranks> on <cores>"),),
)
def scale_of_too_many_ranks(run):
    most = str(len(os.sched_getaffinity(0)) + 1)
    notes = measured(run, f"1,{most}", [WRITER, "--fail-at", most], code=1)
    return next(note for note in notes.splitlines() if "larger machines" in note)


@by_command(
    SECTION,
    "A script that divides one batch among its ranks",
    where=NOTE + "; exit code 1",
    do="`--strong`",
)
def scale_of_a_divided_batch(run):
    return measured(run, "1,2", [WRITER, "--divided"], code=1).splitlines()[0]


@by_command(SECTION, "A number of ranks that is none", where=REFUSED, do="`-n 1,2,4`")
def scale_of_no_number(run):
    return refused(run, "-n", "1,x", "--", "true")


@by_command(SECTION, "No program to measure", where=REFUSED, do="Name it behind `--`")
def scale_without_a_program(run):
    return refused(run, "-n", "1,2")


@by_command(SECTION, "A wrong option of `horo scale`", where=REFUSED, do="`horo scale run --help` lists all")
def scale_with_a_wrong_option(run):
    return refused(run, "-n", "1,2", "--round", "2", "--", "true")


@by_command(SECTION, "A folder with other files", where=REFUSED, do="Another `--out`")
def scale_into_other_files(run):
    return refused(run, "-n", "1,2", "--out", str(ROOT / "tests/tools"), "--", "true")
