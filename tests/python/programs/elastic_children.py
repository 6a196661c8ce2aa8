"""Processes that a rank of an elastic job starts: other programs, programs that use horo, and other jobs."""

import os
import subprocess
import sys

import numpy

import horo.numpy as hvd

SUM = "import horo.numpy as h, numpy as n; h.init(); print(h.size(), h.allreduce(n.ones(1), op=h.Sum).item())"
ALONE = {"HORO_RANK": "0", "HORO_SIZE": "1", "HORO_LOCAL_RANK": "0", "HORO_LOCAL_SIZE": "1"}


def run(program, launcher=(), **options):
    command = [*launcher, sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, **options)


hvd.init()
assert subprocess.run(["true"], close_fds=False).returncode == 0
done = run("import horo; print(horo.rank(), horo.size()); horo.init()")
assert done.stdout == f"{hvd.rank()} {hvd.size()}\n" and "is not a rank" in done.stderr, done
alone = {name: value for name, value in os.environ.items() if name != "HORO_KEY_FD"} | ALONE
done = run(SUM, env=alone)
assert done.stdout == "1 1.0\n", done
done = run(SUM, [sys.argv[1], "run", "-n", "2"])
assert done.stdout.count("2 2.0\n") == 2, done
if (child := os.fork()) == 0:
    try:
        hvd.allreduce(numpy.ones(1))
    except hvd.ShutDown:
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert hvd.allreduce(numpy.ones(1), op=hvd.Sum).item() == hvd.size() == 2
print("end")
