# ruff: noqa: F401
"""Elastic training: a State, and a loop that ranks leave and join while the others train on (docs/elastic.md).

sampler = horo.elastic.Sampler(len(data), batch_size=32)
loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
state = horo.elastic.State(model=model, optimizer=optimizer, sampler=sampler)

@horo.elastic.run
def train(state):
    for number in state.passes(15):
        for x, y in state.batches(loader): ...
"""

from horo.elastic.border import Changed
from horo.elastic.buffers import sharded
from horo.elastic.loop import run
from horo.elastic.sampler import Sampler
from horo.elastic.state import State
