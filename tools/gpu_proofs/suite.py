"""The tests of horo.torch with all tensors on the fake of CUDA: tests/fake_site, tests/fake_devices.py."""

import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests/python"
FAKE = ROOT / "build/release/tests/ring/libhoro_fake_cuda.so"
WAYS = ("host", "nccl")
MOST_LEFT_OUT = 0.1  # of the tests

# Those whose ranks have tensors of torch. Elastic jobs go by way of the host.
FILES = """test_torch test_habits test_random_programs test_collectives test_audit test_horovod test_horovod_scripts
test_backward_threads
test_ends test_rebuild test_overlap test_train_step torch_distributed/test_bits torch_distributed/test_deaths
torch_distributed/test_groups torch_distributed/test_operations torch_distributed/test_parallel
torch_distributed/test_suite torch_distributed/test_trainers torch_distributed/test_works test_checkpoint""".split()
ELASTIC = "test_elastic test_elastic_drain test_elastic_exits test_elastic_parts test_elastic_sets test_elastic_state"

BATCHES = "it counts calls of the host's batches; gradients of a device are submitted one by one"
CALLS = "it interrupts or replaces a call that is made for tensors of the host alone"
VIEWS = "it looks at views of the host's buckets; gradients of a device are copied (docs/gpu.md)"
REPEATS = "it looks at the shortcut for repeated calls, which is one of tensors of the host"
FORKS = "a child that was forked after its parent had used CUDA has no CUDA: it is refused by name (docs/gpu.md)"
LOCK = "it counts when the interpreter's lock is given up; the submission of a device's tensor asks for its stream"
# What is left out by both ways, and why: tests, and claims of tests/python/programs. A reason is one of devices, of the
# fake, or of tensors of the host that count as those of a device.
LEFT_OUT = {
    "repeats.the_same_tensor_comes_again": REPEATS,
    "repeats.others_like_it_come": REPEATS,
    "repeats.another_session_does_not_have_it": REPEATS,
    "interrupts.an_interrupted_hook_keeps_its_gradient": CALLS,
    "interrupts.an_interrupted_batch_keeps_its_gradients_and_is_collected": BATCHES,
    "interrupts.a_submit_that_was_interrupted_before_the_call_is_repeated": CALLS,
    "interrupts.a_collected_optimizer_keeps_what_is_in_flight": CALLS,
    "interrupts.an_interrupted_absent_submit_keeps_its_memory": CALLS,
    "interrupts.the_next_step_releases_abandoned_works": CALLS,
    "batching.a_batch_is_limited_in_bytes": BATCHES,
    "batching.the_last_batch_is_submitted_in_backward": BATCHES,
    "batching.other_gradients_are_submitted_alone": BATCHES,
    "batching.a_gradient_dropped_before_the_submit_is_an_error": BATCHES,
    "bucket_views.a_known_plan_copies_nothing": VIEWS,
    "bucket_views.zero_grad_keeps_the_views_and_absent_gradients_become_none": VIEWS,
    "bucket_views.zero_grad_sets_other_gradients_to_none": VIEWS,
    "bucket_views.gradients_are_none_in_a_forked_child": VIEWS,
    "forks.a_child_may_be_a_separate_world": FORKS,
    "submits.hooks_submit_a_thousand_gradients": LOCK,
    "submits.a_thousand_named_tensors_are_submitted": LOCK,
}
# What is left out by NCCL alone.
LEFT_OUT_BY_NCCL = {
    "breadth.fsdp2_with_codecs": "it counts the bytes of horo's transports, and NCCL's are not among them"
}


def left_out(way):
    return LEFT_OUT | (LEFT_OUT_BY_NCCL if way == "nccl" else {})


def files_of(way):
    names = FILES + (ELASTIC.split() if way == "host" else [])
    return [f"tests/python/{name}.py" for name in names]


def environment(way):
    """The variables of a test whose tensors are on the fake."""
    paths = [str(ROOT / "tests/fake_site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    nccl = {"HORO_NCCL_LIBRARY": str(FAKE)} if way == "nccl" else {}
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "TEST_DEVICE": "fake",
        "HORO_CUDA_LIBRARY": str(FAKE),
        "TEST_LEFT_OUT": " ".join(left_out(way)),
        "HORO_GPU_BACKEND": way,
        **nccl,
    }


def run(way, words=()):
    """Runs the tests that way; words: further ones for pytest. Returns whether all is right."""
    results = ROOT / f"build/gpu_proof_{way}.xml"
    results.parent.mkdir(exist_ok=True)
    skipped = [f"--deselect=tests/python/{name}" for name in left_out(way) if "::" in name]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
    command += [f"--junitxml={results}", *skipped, *words, *([] if has_files(words) else files_of(way))]
    done = subprocess.run(command, cwd=ROOT, env=environment(way))
    suite = xml.etree.ElementTree.parse(results).getroot().find("testsuite")
    count = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    ran, failed = count["tests"] - count["skipped"], count["failures"] + count["errors"]
    print(
        f"gpu_proof: by {way}: {ran - failed} tests passed, {failed} failed, {count['skipped']} have skipped themselves"
    )
    print(f"gpu_proof: {len(left_out(way))} tests and claims are left out:")
    for name, reason in left_out(way).items():
        print(f"  {name}: {reason}")
    is_enough = has_files(words) or len(left_out(way)) <= MOST_LEFT_OUT * ran
    if not is_enough:
        print(f"gpu_proof: more than {MOST_LEFT_OUT:.0%} of the tests are left out")
    return done.returncode == 0 and is_enough


def has_files(words):
    return any(word.startswith("tests/") for word in words)
