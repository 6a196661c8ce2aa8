"""horo.torch on several ranks of this host. Each program checks many claims, because importing torch takes seconds."""

import ast
import os
import subprocess
import sys

import pytest
import ranks


def test_every_collective_agrees_with_torch(run_program):
    run_program("collectives", 3)


def test_a_named_allreduce_is_repeated_in_every_way(run_program):
    run_program("repeats", 2)


def test_extensions_have_meshes_and_collectives_into_their_memory(run_program):
    run_program("services", 4)


def test_names_that_are_used_once_are_forgotten(run_program):
    settings = {"HORO_KEPT_TENSORS": "256", "HORO_MAX_TENSORS": "4096"}
    run_program("new_names", 3, 120, settings, (20_000, 0.02))


def test_interrupts_free_no_memory_in_flight(run_program):
    run_program("interrupts", 2)


def test_handles_may_be_copied_and_shared_by_threads(run_program):
    run_program("handles", 2)


def test_every_collective_works_alone(run_program):
    run_program("alone", 1)


def test_mistakes_raise_errors_on_every_rank(run_program):
    run_program("mistakes", 2)


def test_any_call_of_horo_runs_in_compiled_functions(run_program):
    run_program("compiled_calls", 2)


def test_first_mistakes_are_told_with_the_remedy_or_work(run_program):
    run_program("first_mistakes", 2)


def test_ranks_that_reduce_different_parameters_are_told_at_once_by_name(run_program):
    run_program("disagreement", 3)


def test_communicators_are_the_world_or_make_process_sets(run_program):
    run_program("communicators", 4)


def test_four_ranks_train_like_one_process(run_program):
    run_program("optimizer", 4)


def test_adasum_over_sets_of_every_size_equals_the_recursion(run_program):
    run_program("adasum_numpy", 9)


def test_timelines_begin_and_end_at_any_time(run_program):
    run_program("timelines", 3)


def test_optimizers_train_by_adasum_of_their_changes(run_program):
    run_program("adasum", 3)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_small_gradients_are_submitted_in_batches(run_program, size):
    run_program("batching", size)


def test_a_step_may_be_interrupted_at_any_line(run_program):
    run_program("interrupted_steps", 1)


@pytest.mark.parametrize("size, wire", [(3, "tcp"), (2, "shm")])
def test_gradients_may_be_views_of_their_bucket(run_program, size, wire):
    run_program("bucket_views", size, env={"HORO_TRANSPORT": wire})


@pytest.mark.parametrize("size, wire", [pytest.param(4, "tcp", marks=pytest.mark.long), (2, "shm")])
def test_priorities_and_cross_barrier_change_no_bit(run_program, size, wire):
    run_program("priorities", size, env={"HORO_TRANSPORT": wire, "HORO_CREDIT_BYTES": "256"})


def test_mistakes_with_the_optimizer_raise_errors_or_do_no_harm(run_program):
    run_program("optimizer_mistakes", 2)


@pytest.mark.skipif(not os.environ.get("LARGE_TESTS"), reason="needs 10 GiB and a minute: LARGE_TESTS=1")
def test_more_than_two_to_the_31_elements_are_reduced(run_program):
    run_program("large", 2, deadline_s=1800, env={"HORO_DEADLINE_MS": "500000"})


def test_ranks_agree_on_the_layouts_of_gradients(run_program):
    run_program("layouts", 3)


def test_broadcast_state_is_equal_on_all_ranks(run_program):
    run_program("state", 3)


def test_sessions_begin_and_end_in_any_order_and_thread(run_program, tmp_path):
    run_program("lifetime", 2, arguments=[tmp_path])


def test_memory_that_changes_in_flight_is_an_error(run_program):
    run_program("memory", 2)


def test_forked_processes_are_inert(run_program):
    run_program("forks", 2)


def test_a_thousand_submits_are_cheap_beside_a_busy_thread(run_program, capsys):
    output = run_program("submits", 2)[0].output
    with capsys.disabled():
        print("\n" + "\n".join(line for line in output.splitlines() if "median" in line))


def test_all_other_ranks_get_an_exception(root):
    program = str(root / "tests/python/programs/dies.py")
    ended = ranks.run_ranks([sys.executable, program], 3, deadline_s=180)
    assert [rank.code for rank in ended] == [0, 1, 0], ranks.RanksFailed(ended)
    assert "heard" in ended[0].output and "ArithmeticError: the loss is not a number" in ended[1].output


@pytest.mark.parametrize("call", ["allreduce", "grouped", "alltoall", "recv", "join", "add_process_set"])
def test_a_wait_can_be_interrupted(root, call):
    program = str(root / "tests/python/programs/interrupted.py")
    ended = ranks.run_ranks([sys.executable, program, call], 2, deadline_s=180)
    assert "interrupted" in ended[0].output and ended[0].code != 0, ranks.RanksFailed(ended)
    assert ended[1].code == 0 and "heard" in ended[1].output, ranks.RanksFailed(ended)


FACTORIES = (
    "arange empty empty_strided eye full linspace ones rand randint randn randperm sparse_coo_tensor tensor zeros"
)


def test_every_tensor_that_horo_makes_has_a_device(root):
    """torch.set_default_device() of the user changes none."""
    found = []
    for path in sorted((root / "bindings").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in [f"torch.{name}" for name in FACTORIES.split()]:
                if "device" not in [keyword.arg for keyword in node.keywords]:
                    found.append(f"{path.relative_to(root)}:{node.lineno}: {ast.unparse(node)}")
    assert not found, found


def test_one_process_needs_no_launcher():
    alone = {name: value for name, value in os.environ.items() if name not in ("HORO_RANK", "HORO_SIZE")}
    code = "import torch, horo.torch as h; h.init(); assert h.size() == 1; print(h.allreduce(torch.ones(2)).tolist())"
    done = subprocess.run([sys.executable, "-c", code], env=alone, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[1.0, 1.0]"


def test_nothing_is_wrong_in_silence(run_program):
    run_program("values", 3)
