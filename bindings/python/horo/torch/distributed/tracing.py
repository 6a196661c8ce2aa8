"""Hides the operations of a process group from torch.compile: a compiled step calls them, and does not trace them."""

import torch


def hide(kind):
    """Hides the functions of a class. torch.compiler.disable() would do the same, but imports torch._dynamo, which
    takes seconds."""
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    for function in vars(kind).values():
        if hasattr(function, "__code__"):
            function._torchdynamo_disable = True
            frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    return kind
