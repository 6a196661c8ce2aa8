"""One rank of tools/soak kill: trains until a rank is lost, and prints its progress and its end as JSON.

Argument: "light" (arrays of NumPy over the C ABI), "forks" (the same, with a forked child that outlives its parent),
"clones" (with a child of a bare system call, which runs no fork handlers and keeps all connections open) or "digits"
(examples/digits.py).
"""

import ctypes
import json
import os
import pathlib
import platform
import runpy
import signal
import sys
import time

import horo

STEPS = 60
TENSORS = 12
STEP_S = 0.01  # of simulated computing
CHILD_S = 3  # that a forked child outlives its parent
DIGITS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "digits.py"


def say(**what):
    print(json.dumps(what | {"at": time.monotonic()}), flush=True)


CLONE_CALLS = {"x86_64": 56, "aarch64": 220}


def fork_unnoticed():
    """Forks by the bare system call, so that no handler of pthread_atfork runs."""
    return ctypes.PyDLL(None).syscall(CLONE_CALLS[platform.machine()], int(signal.SIGCHLD), 0, 0, 0, 0)


def outlive_parent(fork):
    """Makes a child that ends CHILD_S after its parent, as a DataLoader's worker may."""
    read, write = os.pipe()
    if fork() != 0:
        os.close(read)
        os.set_inheritable(write, False)
        return write
    os.close(write)
    os.read(read, 1)  # until no process has the other end open
    time.sleep(CHILD_S)
    os._exit(0)


def train(fork):
    import steps

    horo.init()
    say(event="ready")
    session = horo._default.session()
    held = outlive_parent(fork) if fork else None
    arrays = steps.ones(*(1 << (6 + number) for number in range(TENSORS)))
    for number in range(STEPS):
        say(event="step", done=number / STEPS)
        time.sleep(STEP_S)
        steps.average(session, arrays)
    say(event="step", done=1)
    assert all((array == 1).all() for array in arrays)
    horo.shutdown()
    if held is not None:
        os.close(held)


def run(what):
    if what == "digits":
        runpy.run_path(str(DIGITS), run_name="__main__")
        horo.shutdown()
    else:
        train({"forks": os.fork, "clones": fork_unnoticed}.get(what))


def main():
    try:
        run(sys.argv[1])
    except horo.PeerLost as lost:
        say(event="lost", origin=lost.origin, text=str(lost))
        return 3
    except Exception as error:
        say(event="failed", text=f"{type(error).__name__}: {error}")
        return 4
    say(event="done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
