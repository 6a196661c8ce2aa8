"""In an elastic job of four ranks, ranks 2 and 3 get the State of ranks 0 and 1 as if they had joined; ranks die on the
way. Arguments: "rank:gather N": the rank kills itself in its N-th gather."""

import os
import signal
import sys

import torch

import horo.torch as horo
from horo import _default
from horo.elastic import border, gathers
from horo.elastic.giving import Giving

horo.init()
me, session = horo.rank(), _default.session()
calls = 0


def dying(function, after):
    def call(*arguments):
        global calls
        calls += 1
        if calls == after:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)

    return call


for death in sys.argv[1:]:
    rank, place = death.split(":")
    if int(rank) == me:
        gathers.gather = dying(gathers.gather, int(place.removeprefix("gather ")))

has_state = me < 2
torch.manual_seed(me // 2)
model = torch.nn.Linear(1000, 1500)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2 if has_state else 0):
    model(torch.ones(1, 1000)).sum().backward()
    optimizer.step()
state = horo.elastic.State(model=model, optimizer=optimizer, best=me, seed=False)
here = border.Border(session)
state._border = here
session.synced = lambda text: print("synced", me, text, flush=True)
giving = Giving(state, here, has_state)
try:
    rows = here.until_all_have_the_state(giving.give, lambda: giving.has_state, 0)
except horo.PeerLost as error:
    print("lost", me, error, flush=True)
    sys.exit()
total = sum(
    value.double().sum().item() for entry in optimizer.state_dict()["state"].values() for value in entry.values()
)
print("end", me, [row.member for row in rows], state.best, total + model.weight.double().sum().item(), flush=True)
