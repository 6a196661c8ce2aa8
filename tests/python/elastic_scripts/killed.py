"""Runs a script of this folder on a rank, unchanged: `python killed.py SCRIPT RANK STEP JOINS`. The rank with this
number is killed in its optimizer step STEP. From then on the others wait a moment after each step, until JOINS
ranks have joined. At the end it prints a hash of each State: the fields, but for tensors in which ranks may differ."""

import hashlib
import os
import pathlib
import runpy
import signal
import sys
import time

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import horo.torch  # noqa: F401
from horo.elastic import State

PAUSE_S = 0.1
ME = int(os.environ["HORO_RANK"])
script = sys.argv[1]
victim, last, joins = map(int, sys.argv[2:])
states, steps = [], 0


def after_step(*_):
    global steps
    steps += 1
    if (ME, steps) == (victim, last):
        os.kill(os.getpid(), signal.SIGKILL)
    if steps >= last and sum(len(joined) for _, joined in states) < joins and not os.environ.get("HORO_JOINS"):
        time.sleep(PAUSE_S)


def make(state, *args, **fields):
    """State.__init__, which remembers each State, and which ranks join it."""
    init(state, *args, **fields)
    states.append((state, []))
    state.on_change(lambda change, joined=states[-1][1]: joined.extend(change.joined))


def digest_of(state):
    digest = hashlib.sha256()
    for field in state._fields():
        digest.update(repr(field.rest()["value"]).encode())
        for name, tensor, kind in field.horo_state():
            if kind == "replicated":
                value = tensor.detach().contiguous().numpy() if isinstance(tensor, torch.Tensor) else tensor
                digest.update(name.encode() + value.tobytes())
    return digest.hexdigest()[:16]


torch.set_num_threads(1)
register_optimizer_step_post_hook(after_step)
init, State.__init__ = State.__init__, make
sys.argv[:] = [script]
end = runpy.run_path(str(pathlib.Path(__file__).with_name(f"{script}.py")), run_name="__main__")
for state, changes in states:
    print("end", state.step, digest_of(state), "joined", *changes, flush=True)
