"""The tests of CUDA tensors find what is missing: tools/gpu_proof."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from gpu_proofs import mutations, parts, suite  # noqa: E402


def test_a_test_notices_each_part_of_the_fakes_that_does_nothing(fake_cuda):
    done = subprocess.run([ROOT / "tools/gpu_proof", "parts"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("found with seed") == len(parts.PARTS) >= 5


@pytest.mark.parametrize("name", mutations.MUTATIONS)
def test_the_text_of_a_mutation_stands_once_in_its_source(name):
    path, text = mutations.source_of(name)
    assert text != (ROOT / path).read_text()


def test_what_the_suite_leaves_out_exists_and_has_a_reason():
    for name, reason in suite.left_out("nccl").items():
        file, claim = name.split("::") if "::" in name else name.split(".")
        paths = [suite.TESTS / file] if "::" in name else suite.TESTS.rglob(f"programs/{file}.py")
        assert any(f"def {claim.split('[')[0]}(" in path.read_text() for path in paths), name
        assert len(reason) > 20, name
