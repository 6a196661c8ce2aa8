"""A rank of tools/soak survive --digits: runs examples/digits.py unchanged, tells of its rounds, and pauses after each.

DIGITS_PAUSE_MS: the pause. DIGITS_PASSES: passes over the data, if they are to be other than those of the file.
"""

import os
import pathlib
import time

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "examples/digits.py"
TELL_EVERY = 5
rounds = 0


def count(*_):
    global rounds
    rounds += 1
    if rounds % TELL_EVERY == 0:
        print(f"round {rounds}", flush=True)
    time.sleep(int(os.environ.get("DIGITS_PAUSE_MS", "0")) / 1000)


def source():
    text = DIGITS.read_text()
    passes = os.environ.get("DIGITS_PASSES")
    return text.replace("PASSES = 15", f"PASSES = {int(passes)}", 1) if passes else text


register_optimizer_step_post_hook(count)
print(f"pid={os.getpid()}", flush=True)
end = {"__name__": "__main__", "__file__": str(DIGITS)}
exec(compile(source(), str(DIGITS), "exec"), end)
with torch.no_grad():
    right = (end["model"](end["test_images"]).argmax(1) == end["test_labels"]).float().mean().item()
print(f"accuracy {100 * right:.2f} %", flush=True)
