"""Runs the C++ tests of CUDA tensors, on the fakes."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "build/release/tests/horo/horo_tests"
LIMIT_S = 120


def run(tests, pattern, env, limit_s=LIMIT_S):
    """Runs these tests; returns the exit code, which is None at the limit, and the output."""
    command = [str(tests), f"--gtest_filter={pattern}", "--gtest_brief=1", "--gtest_fail_fast"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=limit_s, env=os.environ | env
        )
    except subprocess.TimeoutExpired as late:
        return None, f"no end after {limit_s} s: {(late.stderr or b'')[-2000:]}"
    return done.returncode, done.stdout + done.stderr


def passes(tests, pattern, seed, limit_s=LIMIT_S, **env):
    """Whether these tests pass with this seed of the fake's streams."""
    return run(tests, pattern, {"HORO_FAKE_CUDA_SEED": str(seed), **env}, limit_s)[0] == 0


def check(pattern, seeds, limit_s=LIMIT_S):
    """The tests of the release pass with these seeds, or a failure elsewhere proves nothing."""
    for seed in seeds:
        code, output = run(TESTS, pattern, {"HORO_FAKE_CUDA_SEED": str(seed)}, limit_s)
        if code != 0:
            raise SystemExit(f"gpu_proof: {pattern} fails without a fault, with seed {seed}:\n{output[-3000:]}")
