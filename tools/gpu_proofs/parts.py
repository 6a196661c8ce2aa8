"""Parts of the fakes that do nothing: a test has to fail, as it would if horo left the call out. Takes seconds."""

from gpu_proofs import programs

SEEDS = 6  # at most: a missing wait shows in some orders only
LIMIT_S = 10  # of tests that take a second: without a part they may not end
# HORO_FAKE_CUDA_WITHOUT (tests/ring/cuda/fake_cuda.h), and the tests that see it.
PARTS = {
    "stream_wait": "Schedules.*",
    "callers' stream_wait": "Schedules.*ByNccl",
    "event_query": "Schedules.*:IssuedWork.*",
    "event_wait": "Schedules.*",
    "copy_rows": "Schedules.*ByNccl",
    "comm_error": "Nccl.ATensorMayBe*",
    "comm_abort": "NcclAborts.*",
    "comm_finalize": "Nccl.ARankThatLeaves*",
}


def run_all(word):
    """Takes out the parts whose names have the word. Returns whether a test notices each."""
    missed = []
    chosen = {part: pattern for part, pattern in PARTS.items() if word in part}
    for part, pattern in chosen.items():
        programs.check(pattern, (1,))
        env = {"HORO_FAKE_CUDA_WITHOUT": part}
        seeds = range(1, SEEDS + 1)
        seed = next((one for one in seeds if not programs.passes(programs.TESTS, pattern, one, LIMIT_S, **env)), None)
        print(f"gpu_proof: without {part}: " + (f"found with seed {seed}" if seed else "NOT FOUND"), flush=True)
        if seed is None:
            missed.append(part)
    print(f"gpu_proof: {len(chosen)} parts, {len(chosen) - len(missed)} found")
    return not missed
