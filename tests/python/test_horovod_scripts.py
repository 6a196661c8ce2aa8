"""Six scripts with Horovod's habits, on four ranks and in one process without horo: equal losses in float64.

All of them run one after the other in the same processes, because importing torch takes seconds.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import ranks

HERE = pathlib.Path(__file__).resolve().parent
SIZE = 4
PROGRAM = str(HERE / "horovod_scripts/in_double.py")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
BENCHMARK = "synthetic_benchmark --num-iters 2 --num-warmup-batches 1 --num-batches-per-iter 2 --batch-size 8"
IMAGENET = "imagenet --batches-per-allreduce 2 --momentum 0.9 --wd 0.001 --warmup-epochs 0"
SAME = ["text --clip 0.5", "multi_optimizer --steps 8", "process_sets"]


def losses_of(command, scripts):
    """The lines with losses, and all of the output. Horovod's scripts print on rank 0 alone."""
    arguments = " -- ".join(scripts).split()
    words = [*command, ranks.start.python(), PROGRAM, *arguments]
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.removeprefix("[0] ") for line in done.stdout.splitlines()]
    return [line for line in lines if "loss" in line.lower()], lines


def numbers(line):
    return [float(number) for number in re.findall(r"\d+\.\d+", line)]


def test_scripts_of_horovod_have_the_losses_of_one_process(tmp_path):
    (tmp_path / "ranks").mkdir()
    (tmp_path / "one").mkdir()
    on_ranks = f"{IMAGENET} --batch-size 4 --base-lr 0.05 --checkpoint-format {tmp_path}/ranks/{{epoch}}"
    in_one = f"{IMAGENET} --batch-size {4 * SIZE} --base-lr 0.2 --checkpoint-format {tmp_path}/one/{{epoch}}"
    found, output = losses_of(
        [str(pathlib.Path(sys.executable).parent / "horovodrun"), "-np", str(SIZE)],
        [
            "mnist --batch-size 4 --epochs 2 --lr 0.05 --gradient-predivide-factor 3.0 --no-cuda",
            f"{BENCHMARK} --lr 0.01",
            f"{on_ranks} --epochs 1",
            f"{on_ranks} --epochs 3",  # resumes from the checkpoint
            *SAME,
            f"{BENCHMARK} --lr 0.01 --model small --fp16-allreduce --no-cuda",
            f"{BENCHMARK} --lr 0.04 --use-adasum",  # of equal changes
        ],
    )
    expected, _ = losses_of(
        [],
        [
            f"alone mnist --batch-size {4 * SIZE} --epochs 2 --lr 0.2 --no-cuda",
            f"{BENCHMARK} --lr 0.04",
            f"{in_one} --epochs 3",
            *SAME,
        ],
    )
    adasum, compressed = found.pop(), found.pop()
    assert len(found) == len(expected) == 13
    for ours, theirs in zip(found, expected):
        assert re.sub(r"[\d.]+", "", ours) == re.sub(r"[\d.]+", "", theirs)
        assert max(abs(a - b) for a, b in zip(numbers(ours), numbers(theirs), strict=True)) < 1e-10, (ours, theirs)
    assert abs(numbers(compressed)[0] - numbers(found[2])[0]) < 1e-3
    assert abs(numbers(adasum)[0] - numbers(found[2])[0]) < 1e-10
    assert sorted(path.name for path in (tmp_path / "ranks").iterdir()) == ["1", "2", "3"]
    for pattern in (
        r"Model: resnet50",
        r"Number of CPUs: 4",
        r"Iter #1: [\d.]+ img/sec per CPU",
        r"Img/sec per CPU: [\d.]+ \+-[\d.]+",
        r"Total img/sec on 4 CPU\(s\): [\d.]+ \+-[\d.]+",
    ):
        assert any(re.fullmatch(pattern, line) for line in output), pattern


def test_an_elastic_script_of_horovod_trains_on_when_a_rank_is_killed():
    horovodrun = [str(pathlib.Path(sys.executable).parent / "horovodrun"), "-np", "3", "--min-np", "2"]
    script = [ranks.start.python(), str(HERE / "horovod_scripts/mnist_elastic.py"), "--kill", "0", "5"]
    done = subprocess.run([*horovodrun, *script], env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stderr.count(" died ") == 1, done.stdout + done.stderr
    lines = sorted(re.sub(r"^\[\d\] ", "", line) for line in done.stdout.splitlines())
    for epoch, line in enumerate(lines[:3]):  # a rank that is started in the place of the lost one may be in time
        assert re.fullmatch(f"epoch {epoch}: 160 samples on {'3' if epoch == 0 else '[23]'} ranks", line), lines
    ends = [re.fullmatch(r"rank \d: loss ([\d.]+), resets \[[\d, ]*\], lr 0.1\d", line) for line in lines[3:]]
    assert len(ends) in (2, 3) and all(ends), done.stdout
    assert len({end[1] for end in ends}) == 1 and float(ends[0][1]) < 2.25


KILLED = {  # script: the workers that kill themselves, and in which batch
    "bigrams_elastic": ["--kill", "0", "7", "--kill", "2", "25"],
    "windows_elastic": ["--kill", "1", "6", "--kill", "0", "16"],
}


@pytest.mark.parametrize("script", KILLED)
def test_workers_join_elastic_scripts_of_horovod_in_the_places_of_lost_ones(script):
    horovodrun = [str(pathlib.Path(sys.executable).parent / "horovodrun"), "-np", "3", "--min-np", "1"]
    words = [ranks.start.python(), str(HERE / f"horovod_scripts/{script}.py"), *KILLED[script]]
    done = subprocess.run([*horovodrun, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stderr.count(" died ") == 2, done.stdout + done.stderr
    assert done.stderr.count(" has joined: ") == 2, done.stderr
    ends = re.findall(r"^\[(\d)\] (end 3 workers, .*, loss (.*))$", done.stdout, re.MULTILINE)
    assert len(ends) == 3 and {"3", "4"} < {rank for rank, *_ in ends}, done.stdout
    assert len({end for _, end, _ in ends}) == 1 and float(ends[0][2]) < 2, ends
    assert re.search(r"^\[4\] resets \[3\]$", done.stdout, re.MULTILINE), done.stdout
    used = re.findall(r"^\[\d\] used (\d) (.*)$", done.stdout, re.MULTILINE)
    for epoch in sorted({epoch for epoch, _ in used}):
        assert {int(one) for each, line in used if each == epoch for one in line.split()} == set(range(90)), epoch
