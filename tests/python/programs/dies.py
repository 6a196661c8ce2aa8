"""Rank 1 ends by an exception while the others wait for it: within seconds they get its number and its reason."""

import sys
import time

import claims
import torch

import horo.torch as hvd

hvd.init()
if hvd.rank() == 1:
    raise ArithmeticError("the loss is not a number")
begin = time.monotonic()
with claims.raises(hvd.PeerLost, "rank 1", "ArithmeticError", "the loss is not a number"):
    hvd.allreduce(torch.ones(1), name="after")
assert time.monotonic() - begin < 60
try:
    hvd.allreduce(torch.ones(1), name="again")
except hvd.PeerLost as lost:
    assert lost.origin == 1, lost.origin
else:
    sys.exit("nothing was raised")
print("heard", flush=True)
