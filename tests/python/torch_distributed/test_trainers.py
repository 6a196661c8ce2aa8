"""tools/torch_trainers: its judgement; and one trainer, where its environment is installed."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOL = ROOT / "tools/torch_trainers"
RESULT = "result " + "a" * 64 + " loss 1"
OTHER = "result " + "b" * 64 + " loss 1"


@pytest.fixture(scope="module")
def tool():
    loader = importlib.machinery.SourceFileLoader("torch_trainers", str(TOOL))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("torch_trainers", loader))
    loader.exec_module(module)
    return module


def proof(rank, count=3, size=2):
    return {"rank": rank, "size": size, "counts": {"all_reduce": count}}


@pytest.mark.parametrize(
    "over_horo, over_gloo, said",
    [
        ((0, RESULT, [proof(0), proof(1)]), (0, RESULT, []), None),
        ((1, "ValueError", [proof(0), proof(1)]), (0, "", []), "exit code 1 over horo: ValueError"),
        ((0, RESULT, [proof(0)]), (0, RESULT, []), "on the ranks [0] of 2"),
        ((0, RESULT, [proof(0), proof(1, 0)]), (0, RESULT, []), "on the ranks [0] of 2"),
        ((0, RESULT, [proof(0, 3, 1), proof(0, 3, 1)]), (0, RESULT, []), "on the ranks [] of 2"),
        ((0, RESULT, [proof(0), proof(1)]), (0, RESULT, [proof(0)]), "in the run over Gloo"),
        ((0, RESULT, [proof(0), proof(1)]), (0, OTHER, []), "the results over horo and over Gloo"),
        ((0, RESULT + OTHER, [proof(0), proof(1)]), (0, RESULT + OTHER, []), "the results over horo and over Gloo"),
    ],
)
def test_a_trainer_has_to_run_over_horo_with_the_results_of_gloo(tool, over_horo, over_gloo, said):
    found = tool.faults("lightning-ddp", over_horo, over_gloo)
    assert (found == []) if said is None else (said in found[0])


def test_gloo_is_replaced_where_a_trainer_names_no_other(tool):
    assert tool.environment("transformers", "horo", "/tmp")["HORO_REPLACE_GLOO"] == "1"
    assert "HORO_REPLACE_GLOO" not in tool.environment("transformers", "gloo", "/tmp")
    assert "HORO_REPLACE_GLOO" not in tool.environment("lightning-ddp", "horo", "/tmp")
    assert tool.COMMANDS["lightning-ddp"][0]("horo")[-1] == "horo"


@pytest.mark.skipif(not (ROOT / "build/torch_trainers/bin/python").exists(), reason="not installed")
def test_lightning_trains_over_horo():
    command = [sys.executable, str(TOOL), "--no-install", "lightning-ddp"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
