# Process sets that are removed and made anew, at the top of the function and in each step. A rank that joins makes the
# same new ones, and never had the old ones.
import torch

import horovod.torch as hvd

STEPS, WORKERS = 12, 3

hvd.init()
sets = {}


def remake(name, ranks):
    if name in sets:
        assert hvd.remove_process_set(sets.pop(name))
    sets[name] = hvd.add_process_set(ranks)
    found = hvd.allgather_object([each.process_set_id for each in sets.values()])
    assert all(one == found[0] for one in found), found
    if sets[name].included():
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=sets[name]).item() == len(ranks)


@hvd.elastic.run
def train(state):
    while sets:
        assert hvd.remove_process_set(sets.popitem()[1])
    remake("first", [0])
    remake("last", [hvd.size() - 1])
    while state.step < STEPS:
        while state.step in (3, 6, 9) and hvd.size() < WORKERS:
            state.check_host_updates()
        remake("last", [hvd.size() - 1])
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
        state.step += 1
        state.commit()


state = hvd.elastic.TorchState(step=0)
train(state)
print("end", state.step, {name: each.process_set_id for name, each in sets.items()})
