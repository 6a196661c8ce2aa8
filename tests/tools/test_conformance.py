"""horo conformance: operations of others, in C, compiled here."""

import shutil
import subprocess

import pytest

from launching import HORO, ROOT

SOURCE = """
#include "horo_c.h"
static int32_t add(void* user, void* accumulator, const void* value, uint64_t count, int32_t dtype) {
  if (dtype != HORO_FLOAT32) return 7;
  for (uint64_t i = 0; i < count; ++i) ((float*)accumulator)[i] += ((const float*)value)[i];
  return 0;
}
static int32_t norm(void* user, void* accumulator, const void* value, uint64_t count, int32_t dtype) {
  float sum = 0;
  add(user, accumulator, value, count, dtype);
  for (uint64_t i = 0; i < count; ++i) sum += ((float*)accumulator)[i];
  for (uint64_t i = 0; i < count; ++i) ((float*)accumulator)[i] += sum;
  return 0;
}
const horo_op good = {sizeof(horo_op), HORO_OP_ASSOCIATIVE, add, 0};
const horo_op bad = {sizeof(horo_op), HORO_OP_ASSOCIATIVE, norm, 0};
const horo_op whole = {sizeof(horo_op), HORO_OP_WHOLE, norm, 0};
const horo_op old = {4, HORO_OP_WHOLE, norm, 0};
"""


@pytest.fixture
def conformance(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "ops.c").write_text(SOURCE)
    library = tmp_path / "ops.so"
    flags = ["-shared", "-fPIC", "-I", ROOT / "bindings/c"]
    subprocess.run([compiler, *flags, tmp_path / "ops.c", "-o", library], check=True, timeout=60)

    def run(*arguments):
        command = [HORO, "conformance", "op", library, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    return run


def test_a_good_operation_has_no_faults(conformance):
    assert conformance("good").stdout == "operation 'good': no faults\n"
    assert conformance("whole").returncode == 0


def test_a_bad_operation_is_told_what_is_wrong_with_it(conformance):
    done = conformance("bad", "--counts", "17")
    assert done.returncode == 1
    assert done.stdout.startswith("operation 'bad', 17 elements of float32: pieces do not give what the whole does")
    assert "it returned 7, expected 0" in conformance("good", "--dtype", "float64,float32").stdout


def test_what_is_no_operation_is_refused_by_name(conformance):
    for symbol, word in (("none", "there is no such symbol"), ("old", "struct_bytes")):
        done = conformance(symbol)
        assert done.returncode == 2 and word in done.stderr and symbol in done.stderr
    assert "no such type" in conformance("good", "--dtype", "float33").stderr
