"""Elastic jobs as scripts see them: each statement of docs/elastic.md that a small program can show."""

import pathlib
import re
import signal
import subprocess

import pytest
import ranks
from test_launchers import environment, executable

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
DEADLINE_S = 30
TORCH_DEADLINE_S = 90  # several processes import it at the same time


def command(size, name, *arguments, options=("--min-np", "1"), deadline=DEADLINE_S):
    run = [executable("horo"), "run", "-n", str(size), "--timeout", str(deadline), *options]
    return [*run, ranks.start.python(), str(PROGRAMS / f"{name}.py"), *map(str, arguments)]


def run(words, code=0, env=()):
    """Runs a job; returns its output and its errors."""
    done = subprocess.run(words, env=environment(env), capture_output=True, text=True, timeout=2 * TORCH_DEADLINE_S)
    assert done.returncode == code, f"exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


def lines_of(output):
    """The lines without the prefixes of ranks."""
    return re.sub(r"^\[\d+\] ", "", output, flags=re.MULTILINE).splitlines()


def job(size, name, *arguments, options=("--min-np", "1"), deadline=DEADLINE_S, code=0, env=()):
    """Runs a program; returns its lines, and the errors of the job."""
    output, errors = run(command(size, name, *arguments, options=options, deadline=deadline), code, env)
    return lines_of(output), errors


def torch_job(size, name, *arguments, options=("--min-np", "1")):
    return job(size, name, *arguments, options=options, deadline=TORCH_DEADLINE_S)


def test_adasum_goes_on_without_the_lost_rank():
    lines, errors = torch_job(4, "elastic_adasum")
    assert len(lines) == 3 and len(set(lines)) == 1 and lines[0].endswith(" True"), errors


LOST = "PeerLost"
# By call: the result on ranks 0, 2 and 3 after the death of rank 1; None: the rank does not take part.
CALLS = {
    "average": ([5 / 3] * 2,) * 3,
    "unnamed": ([5.0] * 2,) * 3,
    "unit": ([5.0] * 2,) * 3,
    "gathered": ([0.0, 0.0, 2.0, 2.0],) * 3,
    "of 0": ([0.0, 0.0],) * 3,
    "of 1": (LOST,) * 3,
    "of 2": (LOST,) * 3,
    "at 0": ([5 / 3] * 2, "nothing", "nothing"),
    "at 3": (LOST,) * 3,
    "dealt": (LOST,) * 3,
    "exchanged": (LOST,) * 3,
    "from 0": (LOST,) * 3,
    "in a set that lost one": (LOST, None, LOST),
    "in a set": (None, [5.0] * 4, [5.0] * 4),
    "to 1": (LOST, None, None),
}


def test_calls_run_again_or_fail_on_all_ranks_alike():
    output, _ = run(command(4, "elastic_calls"))
    found = {}
    for rank, name, result in re.findall(r"^\[(\d)\] (.+?) [=:] (.*)$", output, re.MULTILINE):
        found[name, int(rank)] = result
    expected = {(name, rank): one for name, row in CALLS.items() for rank, one in zip((0, 2, 3), row) if one}
    assert found.keys() == expected.keys()
    for (name, rank), result in expected.items():
        text = found[name, rank]
        if isinstance(result, str):
            assert text.startswith(result), (name, rank, text)
            assert result != LOST or ("rank 1" in text and text.endswith(" 1")), text
        else:
            numbers = [float(number) for number in re.findall(r"[\d.]+", text)]
            assert numbers[: len(result)] == pytest.approx(result), (name, rank, text)


def test_rank_size_and_sets_change_at_waits_and_on_change_tells_it():
    lines, errors = job(4, "elastic_changes")
    assert sorted(lines) == ["refused", "refused", "seen by 0", "seen by 3"]
    assert errors.count(" died ") == 2


def check_steps(lines):
    """The lines of elastic_training on 4 ranks, of which three are lost one after the other."""
    steps = [line.split() for line in lines if line.startswith("step")]
    assert [int(step) for _, step, _ in steps] == list(range(12))  # rank 0, whichever process it is, has printed each
    means = [float(mean) for *_, mean in steps]
    of = {"0123": 15 / 4, "012": 7 / 3, "12": 3, "1": 2}
    expected = ["0123"] * 2 + ["012"] * 4 + ["12"] * 2 + ["1"] * 4
    assert means == pytest.approx([of[ids] for ids in expected])
    assert lines[-1] == "rank 1 printed [5, 6, 7, 8, 9, 10, 11] saw [(2, (3,)), (5, (0,)), (8, (1,))]"


def test_each_step_is_applied_once_with_the_mean_of_those_who_contributed():
    lines, errors = torch_job(4, "elastic_training")
    check_steps(lines)
    told = [line for line in errors.splitlines() if line.startswith("horo run: rank")]
    story = [line for line in told if "is not replaced" not in line]  # which is told after 5 s
    assert [tuple(line.split()[3:5]) for line in story] == [("3", "died"), ("0", "died"), ("2", "failed")]
    assert "at the start" not in story[2] and ": ArithmeticError: a bad sample); epoch" in story[2]
    assert re.fullmatch(r"horo run: rank 2 failed \(host \S+: an exception at .*", story[2])


CAUGHT = ["Mismatch 3 True", "OverflowError 3 True"]


def test_all_ranks_catch_an_exception_in_backward_of_one_also_below_large_gradients():
    lines, errors = torch_job(2, "elastic_raises")
    assert sorted(lines) == CAUGHT, errors


@pytest.mark.parametrize(
    "how, code, words",
    [
        ("dies", 0, "rank 1 died (signal 9 (SIGKILL))"),
        ("dies early", 0, "rank 1 died (signal 9 (SIGKILL))"),
        ("raises", 0, "KeyError: 'bad sample 17'"),
        ("exits 0", 0, "rank 1 left"),
        ("exits 3", 0, "rank 1 failed (exit code 3)"),
        ("leaves", 0, "rank 1 left"),
    ],
)
def test_the_others_go_on(how, code, words):
    lines, errors = job(3, "elastic_ends", how, code=code)
    assert lines == ["end 2 2.0"] * 2, errors
    assert words in errors and "epoch 1 has ranks 0, 2 as ranks 0, 1" in errors


@pytest.mark.parametrize("size, least", [(2, 2), (3, 1), (4, 2), (4, 4)])
@pytest.mark.parametrize("how", ["all raise", "all raise, one later"])
def test_the_same_exception_on_all_ranks_ends_the_job(size, least, how):
    lines, errors = job(size, "elastic_ends", how, options=("--min-np", str(least)), code=1)
    assert lines == [] and "KeyError: 'bad sample 17' (exit code 1)" in errors
    story = [line for line in errors.splitlines() if line.startswith("horo run: ")]
    assert re.match(rf"horo run: all {size} ranks failed in the same way: KeyError at elastic_ends.py:", story[0])
    assert len(story) == 2 and " failed first: KeyError" in story[1], errors


def test_a_rank_that_is_stopped_is_evicted():
    lines, errors = job(3, "elastic_ends", "stops", options=("--min-np", "2", "--evict-after", "0.5"))
    assert lines == ["end 2 2.0"] * 2 and "evicted" in errors


# By the id of the lost ranks: id, sum, local_rank, local_size, cross_rank and cross_size of those that are left;
# whether the hosts had unequal numbers of ranks at the start, and have equal ones at the end.
PLACES = {
    (1,): ["0 29 0 2 0 2 True True", "2 29 2 2 0 1 True True", "3 29 0 2 1 2 True True", "4 29 1 2 0 1 True True"],
    (0,): ["1 30 1 2 0 2 True True", "2 30 2 2 0 1 True True", "3 30 0 2 0 1 True True", "4 30 1 2 1 2 True True"],
    (0, 1, 2): ["3 24 0 2 0 1 True True", "4 24 1 2 0 1 True True"],
    (1, 2, 3): ["0 17 0 1 0 1 True True", "4 17 1 1 0 1 True True"],
}


@pytest.mark.parametrize("lost", PLACES)
def test_local_sizes_follow_the_ranks_that_are_left_on_a_host(lost):
    lines, errors = job(5, "elastic_hosts", *lost)
    assert sorted(lines) == PLACES[lost], errors


# It could not connect in the next epoch.
def test_a_rank_without_descriptors_fails_and_the_others_go_on():
    lines, errors = job(3, "elastic_ends", "dies, and rank 2 has no descriptors")
    assert lines == ["end 1 1.0"], errors
    assert re.search(r"rank 2 failed \([^0-9].*(Too many open files|RLIMIT_NOFILE|ulimit -n).*\)", errors), errors


def test_a_job_of_too_few_ranks_ends_at_once_with_the_code_of_the_lost_one():
    lines, errors = job(3, "elastic_ends", "dies", options=("--min-np", "3"), code=128 + signal.SIGKILL)
    reason = "ranks 0, 2 are left of 3, fewer than --min-np 3, and none can come back"
    assert lines == [] and errors.count(f"PeerLost: rank 1 died (signal 9 (SIGKILL)); {reason}") == 2, errors


def test_ctrl_c_ends_the_job():
    words = command(3, "elastic_ends", "until a signal")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=environment(), **pipes) as running:
        assert running.stdout.readline() == "[0] runs\n"
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 128 + signal.SIGINT and "KeyboardInterrupt" in errors
    assert "goes on" not in errors and "epoch" not in errors


def test_processes_that_a_rank_starts_are_no_members():
    assert job(2, "elastic_children", executable("horo"))[0] == ["end"] * 2


def test_refusals():
    assert torch_job(1, "elastic_refused")[0] == ["end"]
    _, errors = job(1, "elastic_ends", "dies", env={"HORO_BACKEND": "mpi"}, code=1)
    assert "HORO_BACKEND=mpi" in errors


@pytest.fixture(scope="module")
def static():
    return torch_job(3, "strangers", options=())[0]


def test_without_a_death_scripts_have_the_bits_of_a_static_job(static):
    assert torch_job(3, "strangers")[0] == static and len(static) == 12


def test_after_a_death_scripts_have_the_bits_of_a_static_job_of_the_others(static):
    lines, errors = torch_job(5, "strangers", 3, "views", "groups")
    assert lines[3:] == static[3:] and not set(lines[:3]) & set(static), errors
    assert [line.split()[-1] for line in lines[:4]] == ["5", "4", "3", "3"]


@pytest.mark.parametrize(
    "call", ["broadcast", "reduce", "gather", "reducescatter", "grouped", "alltoall", "scatter", "set"]
)
def test_a_call_from_before_the_loss_was_seen_fails_by_name(call):
    lines, errors = job(4, "elastic_stale", call, deadline=10)
    assert lines == ["PeerLost 0 3"] * 3, errors
