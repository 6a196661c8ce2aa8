"""Checks of programs that run on every rank: claims are printed and then checked, in order. Without torch."""

import random

from left_out import to_run
from raising import raises  # noqa: F401

import horo


def check(*claims, init=True):
    """Runs each function; the last line printed names the one that failed or hung."""
    if init:
        horo.init()
    for claim in to_run(claims):
        print(f"{claim.__name__} ...", flush=True)
        random.seed(claim.__name__)  # a string: the same seed on all ranks
        claim()
    horo.shutdown()
    print("done", flush=True)
