"""horo conformance: users' operations and codecs in C, compiled by the test."""

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

static uint64_t bytes_of(void* user, uint64_t count) { return count; }
static int32_t encode(void* user, const float* x, float* residual, void* wire, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const float most = x[i] > 12.7f ? 12.7f : x[i] < -12.7f ? -12.7f : x[i];
    const int is_number = x[i] - x[i] == 0;
    ((int8_t*)wire)[i] = is_number ? most * 10.0f + (most < 0 ? -0.5f : 0.5f) : -128;
  }
  if (user) ((int8_t*)wire)[count] = 0;
  return 0;
}
static int32_t decode(void* user, const void* wire, float* out, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const int8_t tenths = ((const int8_t*)wire)[i];
    out[i] = tenths == -128 ? __builtin_nanf("") : tenths / 10.0f;
  }
  return 0;
}
const horo_codec tenths = {sizeof(horo_codec), 0, 1, bytes_of, encode, decode, 0};
const horo_codec too_far = {sizeof(horo_codec), 0, 1, bytes_of, encode, decode, "yes"};
const horo_codec old_codec = {4, 0, 1, bytes_of, encode, decode, 0};
"""


@pytest.fixture
def conformance(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "ops.c").write_text(SOURCE)
    library = tmp_path / "ops.so"
    flags = ["-shared", "-fPIC", "-I", ROOT / "bindings/c"]
    subprocess.run([compiler, *flags, tmp_path / "ops.c", "-o", library], check=True, timeout=180)

    def run(*arguments, kind="op"):
        command = [HORO, "conformance", kind, library, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=180)

    return run


def test_a_good_operation_has_no_faults(conformance):
    assert conformance("good").stdout == "operation 'good': no faults\n"
    assert conformance("whole").returncode == 0


def test_the_fault_of_a_bad_operation_is_reported(conformance):
    done = conformance("bad", "--counts", "17")
    assert done.returncode == 1
    assert done.stdout.startswith("operation 'bad', 17 elements of float32: pieces and the whole give different")
    assert "it returned 7, expected 0" in conformance("good", "--dtype", "float64,float32").stdout


def test_symbols_that_are_not_operations_are_refused(conformance):
    for symbol, word in (("none", "there is no such symbol"), ("old", "struct_bytes")):
        done = conformance(symbol)
        assert done.returncode == 2 and word in done.stderr and symbol in done.stderr
    assert "no such type" in conformance("good", "--dtype", "float33").stderr


def test_a_good_codec_has_no_faults_and_must_not_claim_too_much(conformance):
    claim = ("--absolute", "0.0501", "--largest", "12.7")
    assert conformance("tenths", *claim, kind="codec").stdout == "codec 'tenths': no faults\n"
    boast = conformance("tenths", "--absolute", "0.01", "--largest", "12.7", kind="codec")
    assert boast.returncode == 1
    assert "expected an error of at most 0.01" in boast.stdout


def test_a_codec_that_writes_too_far_is_reported(conformance):
    done = conformance("too_far", "--absolute", "0.0501", "--largest", "12.7", kind="codec")
    assert done.returncode == 1
    assert "elements wrote outside of its wire_bytes()" in done.stdout


def test_symbols_that_are_not_codecs_are_refused(conformance):
    for symbol in ("old_codec", "missing"):
        done = conformance(symbol, kind="codec")
        assert done.returncode == 2 and symbol in done.stderr
