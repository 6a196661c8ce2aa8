"""rebuilt.py EVERY: trains small models in several ways; after every EVERYth step the world is rebuilt (0: never).

Prints the sha256 of the parameters of each way. rebuilt.py EVERY SCRIPT runs this script instead. rebuilt.py dies MS:
the world is rebuilt again and again, until the last rank is killed after this time; the others print their PeerLost.
"""

import hashlib
import os
import runpy
import signal
import sys
import threading
import time

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import horo.torch as hvd
from horo import _default

every = 0 if sys.argv[1] == "dies" else int(sys.argv[1])
steps = 0


def rebuild(*_):
    global steps
    steps += 1
    if every and steps % every == 0:
        epoch = _default.session().topology.epoch
        _default.session().rebuild()
        assert _default.session().topology.epoch == epoch + 1


register_optimizer_step_post_hook(rebuild)
torch.set_num_threads(1)

WAYS = {
    "plain": {},
    "views": {"gradient_as_bucket_view": True},
    "groups": {"num_groups": 2},
    "fp16": {"compression": hvd.Compression.fp16},
    "int8": {"compression": hvd.Compression.int8},
    "passes": {"backward_passes_per_step": 2},
    "sum": {"op": hvd.Sum},
}


def train(way, options):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    data = torch.Generator().manual_seed(hvd.rank())
    for _ in range(24):
        optimizer.zero_grad()
        for _ in range(options.get("backward_passes_per_step", 1)):
            x, y = torch.randn(8, 16, generator=data), torch.randn(8, 4, generator=data)
            ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
        hvd.allreduce(torch.tensor(1.0), name="metric")
    found = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    assert hvd.allgather_object(found) == [found] * hvd.size()
    print("way", way, found, flush=True)


def until_death(milliseconds):
    hvd.init()
    hvd.barrier()
    if hvd.rank() == hvd.size() - 1:
        threading.Timer(milliseconds / 1000, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    begin = time.monotonic()
    try:
        while True:
            hvd.allreduce(torch.ones(1000), name="x")
            _default.session().rebuild()
    except hvd.PeerLost as error:
        print(f"lost after {time.monotonic() - begin:.3f} s: {error}", flush=True)


if sys.argv[1] == "dies":
    until_death(int(sys.argv[2]))
elif len(sys.argv) > 2:
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
else:
    hvd.init()
    for one, chosen in WAYS.items():
        train(one, chosen)
    hvd.shutdown()
