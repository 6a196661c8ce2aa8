"""The global random generators of a rank: torch, NumPy and Python.

A rank that joins has no generator that could go on. So at each batch the generators of each rank are seeded by (seed,
member id, step): the draws of a step do not depend on when its rank has joined, and differ between ranks.
"""

import hashlib
import random
import sys


def seed_all(seed, member, step):
    """Seeds the generators of the libraries that are imported."""
    digest = hashlib.blake2b(f"horo {seed} {member} {step}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "little")
    random.seed(number)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(number & 0xFFFFFFFF)
    if torch is not None:
        torch.default_generator.manual_seed(number >> 1)  # torch.manual_seed() takes 0.1 ms
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(number >> 1)
