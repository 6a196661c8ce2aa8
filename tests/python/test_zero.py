"""horo.zero on several ranks of this host."""

import collections
import importlib.util
import os
import pathlib
import re
import shutil

import pytest

IS_LARGE = bool(os.environ.get("LARGE_TESTS"))
BUCKETS = ("2000", "1048576", "0")


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_divided_steps_have_the_bits_of_plain_horo(run_program, size):
    arguments = ("50", *BUCKETS) if IS_LARGE else ("8", BUCKETS[size % 3])
    run_program("zero_bits", size, deadline_s=1800 if IS_LARGE else 300, arguments=arguments)


def test_the_extension_needs_no_private_module(run_program, tmp_path):
    package = pathlib.Path(importlib.util.find_spec("horo").origin).parent
    copy = pathlib.Path(shutil.copytree(package, tmp_path / "horo", ignore=shutil.ignore_patterns("__pycache__")))
    private = [path for path in copy.rglob("_*.py") if not path.stem.startswith("__")]
    word = re.compile(rf"\b({'|'.join(path.stem for path in private)})\b")
    for path in copy.rglob("*.py"):
        if copy / "zero" not in path.parents:
            path.write_text(word.sub(r"\1_renamed", path.read_text()))
    for path in private:
        path.rename(path.with_name(f"{path.stem}_renamed.py"))
    run_program("zero_public", 2, env={"PYTHONPATH": str(tmp_path)}, arguments=("2", "0"))


@pytest.mark.parametrize("size", [1, 3])
def test_what_scripts_do_has_the_bits_of_plain_horo(run_program, size):
    run_program("zero_habits", size)


@pytest.mark.parametrize("size", [1, 3])
def test_types_memory_copies_and_sets_are_those_of_plain_horo(run_program, size):
    run_program("zero_types", size)


def test_what_any_number_of_ranks_has_saved_is_loaded_by_any_other(run_program, tmp_path):
    found = collections.defaultdict(list)
    for size in (4, 1, 3, 2):
        saved = [path.stem for path in tmp_path.glob("*.pt")]
        (output,) = [rank.output for rank in run_program("zero_checkpoints", size, arguments=(tmp_path, *saved))][:1]
        rows = [line.split() for line in output.splitlines() if line.startswith("loaded ")]  # others: the log
        for _, source, _, *digests in rows:
            found[size, source].append(tuple(digests))
    for (size, source), rows in found.items():  # plain and divided, state_dict() and checkpoint, into both
        assert len(rows) == (2 if source == "itself" else 8) and len(set(rows)) == 1, (size, source, rows)
        assert source == "itself" or rows[0][0] == found[int(source), "itself"][0][0], (size, source)


@pytest.mark.parametrize("size", [1, 2])
def test_states_of_horovod_have_the_whole_state(run_program, size):
    outputs = [run_program("zero_torch_state", size, arguments=(kind,)) for kind in ("plain", "zero")]
    found = {rank.output.split("digests ")[1].splitlines()[0] for ranks in outputs for rank in ranks}
    assert len(found) == 1


@pytest.mark.parametrize("size", [2, 3])
def test_fully_sharded_models_have_the_bits_of_plain_horo(run_program, size):
    run_program("zero_sharded", size)
