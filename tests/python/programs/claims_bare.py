"""Checks of programs that run on every rank: claims are printed and then checked, in order. Without torch."""

import contextlib
import random

import horo


def check(*claims, init=True):
    """Runs each function; the last line printed names the one that failed or hung."""
    if init:
        horo.init()
    for claim in claims:
        print(f"{claim.__name__} ...", flush=True)
        random.seed(claim.__name__)  # a string: the same seed on all ranks
        claim()
    horo.shutdown()
    print("done", flush=True)


@contextlib.contextmanager
def raises(kind, *parts):
    """The block raises exactly this kind, and its text has all these parts."""
    try:
        yield
    except Exception as error:
        assert type(error) is kind, f"{type(error).__name__}: {error}; expected {kind.__name__}"
        missing = [part for part in parts if part.lower() not in str(error).lower()]
        assert not missing, f"{missing} not in: {error}"
    else:
        raise AssertionError(f"nothing was raised; expected {kind.__name__}")
