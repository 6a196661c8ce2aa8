"""Habits of training scripts on 3 ranks: equal bits on all ranks and the values of a single process, or a named error.

The habits of several modules of habits/ run one after the other in the same processes, each in a session of its own.
"""

import ast
import functools
import json
import pathlib
import sys

import pytest
import ranks

TESTS = pathlib.Path(__file__).resolve().parent
HABITS = TESTS / "habits"
SIZE = 3
RUNS = [
    ["shared_memory", "between", "rounds"],
    ["freezing", "sparse", "reached", "whole", "several", "edited"],
    ["failing", "uneven", "heap", "compiled"],
]


def habits_of(module):
    """The names of a module's habits. The module is not imported: torch takes seconds."""
    nodes = ast.parse((HABITS / f"{module}.py").read_text()).body
    names = [node.name for node in nodes if isinstance(node, ast.FunctionDef)]
    return [f"{module}.{name.removeprefix('habit_')}" for name in names if name.startswith("habit_")]


@functools.cache
def run_modules(modules):
    """For each habit what each rank said; and the outputs of the ranks."""
    ended = ranks.run_ranks([sys.executable, str(HABITS / "run_habits.py"), *modules], SIZE, deadline_s=900)
    results = {}
    for rank in ended:
        for line in rank.output.splitlines():
            if line.startswith("habit ") and line.endswith("}"):
                _, name, said = line.split(" ", 2)
                results.setdefault(name, {})[rank.rank] = json.loads(said)
    return results, ended


CASES = [(tuple(run), name) for run in RUNS for module in run for name in habits_of(module)]


@pytest.mark.parametrize("run, name", CASES, ids=[name for _, name in CASES])
def test_a_habit_is_right_on_every_rank(run, name):
    results, ended = run_modules(run)
    said = results.get(name, {})
    if len(said) != SIZE:
        pytest.fail(f"{name} ended on the ranks {sorted(said)} only:\n{ranks.RanksFailed(ended)}", pytrace=False)
    wrong = [f"rank {rank}: {one['wrong']}" for rank, one in said.items() if one["wrong"]]
    if wrong:
        pytest.fail("\n".join([name, *wrong]), pytrace=False)


def test_every_module_of_habits_is_run():
    found = {path.stem for path in HABITS.glob("*.py")} - {"job", "run_habits", "drawn"}
    assert found == {module for run in RUNS for module in run} and len(CASES) >= 150
