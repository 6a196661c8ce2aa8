"""Hides horo from torch.compile: compiled code calls horo's functions, and does not trace them.

A trace would be wrong, because a call reads ranks, sessions and addresses that may differ at the next call. Functions
are marked, so that no caller inlines them. Their code is marked too, so that no frame of theirs, or below, is compiled
when they run. torch.compiler.disable() would do the same, but it imports torch._dynamo, which takes seconds, and each
call would pass a wrapper.
"""

import os
import sys
import types

import torch

_HORO = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_WHY = "calls of horo run outside of compiled graphs: leave out fullgraph=True, or move the call out of the function"


def _skipper():
    """A function of a code object. From then on torch compiles neither its frames nor frames below them."""
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP
        strategy = frames._FrameExecStrategy(skip, skip)
        return lambda code: frames.set_code_exec_strategy(code, strategy)
    return getattr(frames, "skip_code", lambda code: None)  # of older versions


_skip = _skipper()


def _skip_all(code):
    """Skips a function's code, and that of functions that it makes."""
    _skip(code)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            _skip_all(inner)


def _hide_function(function):
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = _WHY
    _skip_all(function.__code__)


def _functions_of(value):
    """The functions behind an attribute of a module or class."""
    if isinstance(value, property):
        return [each for each in (value.fget, value.fset, value.fdel) if each is not None]
    return [getattr(value, "__func__", value)]  # of a staticmethod, a classmethod or a bound method


def _is_in(folder, function):
    return isinstance(function, types.FunctionType) and function.__code__.co_filename.startswith(folder)


def traced(function):
    """A decorator for a function that compiled code may trace, because it calls functions of the user."""
    function.is_traced = True
    return function


def hide(owner, folder=_HORO):
    """Hides the functions of a module or class that are in this folder, that of horo; returns the owner."""
    for value in list(vars(owner).values()):
        if isinstance(value, type):
            if value is not owner and value.__module__ == getattr(owner, "__name__", None):
                hide(value, folder)
            continue
        for function in _functions_of(value):
            if _is_in(folder, function) and not hasattr(function, "is_traced"):
                _hide_function(function)
    return owner


def hide_package():
    """Hides all modules of horo that are imported."""
    for name, module in list(sys.modules.items()):
        if name == "horo" or name.startswith("horo."):
            hide(module)
