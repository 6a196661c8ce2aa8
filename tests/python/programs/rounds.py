"""Rounds through the session: one that differs on a rank, and one that a rank gives up, fail with one text on all."""

import numpy as np

import horo
from horo import _default, _native
from horo._specs import Spec

STREAM = (1 << 64) - 1


def submit(name):
    spec = Spec(name, _native.ALL_REDUCE, shape=(4,), stepwise=1, round_stream=STREAM)
    data = np.ones(4, np.float32)
    return session.submit(spec, data.ctypes.data, data.ctypes.data, data), data


def ended(name):
    """The first element of the sum, or the text of the failure."""
    work, data = submit(name)
    try:
        session.wait([work])
        return float(data[0])
    except horo.Mismatch as mismatch:
        return str(mismatch)
    finally:
        session.release([work])


horo.init()
session = _default.session()
rank = horo.rank()
for step in range(4):  # the tensors come into a known plan
    session.begin_round(0, STREAM, step, 1)
    works = [submit(name)[0] for name in ("a", "b")]
    session.wait(works)
    session.release(works)
    session.step_end()

session.begin_round(0, STREAM, *((3, 2) if rank == 0 else (4, 1)))
TWO_ROUNDS = (
    "tensor 'a': rank 0 submits it in round 2 of step 3, ranks 1, 2 in round 1 of step 4: rank 0 called backward() "
    "more often, or step() less often, than ranks 1, 2. Nothing was changed; call both equally often on all ranks"
)
assert ended("a") == TWO_ROUNDS, ended("a")

session.begin_round(0, STREAM, 5, 1)
if rank == 1:
    session.fail_round(0, STREAM, "ValueError: \u00e9" + "x" * 2000)
else:
    reason = "ValueError: \u00e9" + "x" * (1024 - 14)
    assert ended("b") == f"tensor 'b': rank 1 has given up round 1 of step 5: {reason}", ended("b")

session.begin_round(0, STREAM, 5, 2)
assert [ended("a"), ended("b")] == [3.0, 3.0]
