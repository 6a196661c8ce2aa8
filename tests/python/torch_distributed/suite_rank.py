"""One rank of tools/torch_suite: reads [name, store file] from stdin, runs that test of torch's suite in a group of its
own, and writes [outcome, text] to stdout."""

import datetime
import json
import os
import sys
import traceback
import types
import unittest

try:
    import expecttest  # noqa: F401
except ImportError:  # torch's tests only derive from its TestCase
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)

import torch.distributed as dist
from torch.testing._internal.common_utils import set_rng_seed
from torch.testing._internal.distributed import distributed_test
from torch.testing._internal.distributed.distributed_test import (
    CUSTOM_PG_TIMEOUT,
    Barrier,
    DistributedTest,
    TestDistBackend,
)

TIMEOUT_S = 50


class Suite(TestDistBackend, DistributedTest._DistTestBase):
    """The tests, as methods."""


def names():
    """Those that are not skipped by a decorator."""
    found = (name for name in dir(Suite) if name.startswith("test_"))
    return [name for name in found if not getattr(getattr(Suite, name), "__unittest_skip__", False)]


def _run(name, rank, file):
    set_rng_seed(1234)  # a new process has equal seeds on all ranks
    case = Suite(name)
    case.rank, case.file_name = rank, file
    timeout = datetime.timedelta(seconds=CUSTOM_PG_TIMEOUT.get(name, TIMEOUT_S))
    size, backend = int(os.environ["WORLD_SIZE"]), os.environ["BACKEND"]
    dist.init_process_group(backend, init_method=f"file://{file}", world_size=size, rank=rank, timeout=timeout)
    case._barrier()
    getattr(case, name)()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    return "pass", ""


def outcome_of(name, rank, file):
    try:
        return _run(name, rank, file)
    except unittest.SkipTest as skip:
        outcome = "skip", str(skip)
    except SystemExit as end:
        outcome = ("skip" if end.code in range(70, 91) else "fail"), f"exit code {end.code}"
    except BaseException:
        return "fail", traceback.format_exc()
    if dist.is_initialized():
        dist.destroy_process_group()
    return outcome


def main():
    rank = int(sys.argv[1])
    if os.environ.get("HORO_REPLACE_GLOO") == "1":
        dist.distributed_c10d.ProcessGroupGloo = None  # a hidden Gloo would fail
        distributed_test.PROFILING_SUPPORTED_BACKENDS.clear()  # the profiler's events of Gloo are Gloo's own
        distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.clear()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tests print goes to the log
    Barrier.init()
    for line in sys.stdin:
        name, file = json.loads(line)
        print(f"---- {name}", file=sys.stderr, flush=True)
        answers.write(json.dumps(outcome_of(name, rank, file)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
