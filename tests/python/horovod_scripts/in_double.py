"""Runs scripts of this folder one after the other, with torch's default type float64: NAME ARGUMENTS [-- NAME ...].

After the word "alone" without horo, by alone.py."""

import pathlib
import runpy
import sys

import torch

FOLDER = pathlib.Path(__file__).resolve().parent

words = sys.argv[1:]
if words[0] == "alone":
    from alone import install

    install()
    words = words[1:]
import horovod.torch as hvd  # noqa: E402

torch.set_default_dtype(torch.float64)
while words:
    end = words.index("--") if "--" in words else len(words)
    (name, *arguments), words = words[:end], words[end + 1 :]
    sys.argv = [f"{name}.py", *arguments]
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    hvd.shutdown()
