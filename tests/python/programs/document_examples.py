"""Runs each block of Python in the documents that are its arguments, one after the other, each as a module."""

import re
import sys

import torch.distributed

import horo.torch


def clean_up():
    """A block is a whole program, at whose end these calls are made by the interpreter or need not be made."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    horo.shutdown()


for path in sys.argv[1:]:
    text = open(path).read()
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S):
        line = text.count("\n", 0, found.start()) + 1
        block = "\n" * line + found[1]  # so that a traceback has the document's line numbers
        exec(compile(block, path, "exec"), {"__name__": "__main__"})
        clean_up()
        print(f"ran {path}:{line}", flush=True)
