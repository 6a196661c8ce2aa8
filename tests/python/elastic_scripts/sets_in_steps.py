# A process set that is removed and made anew in each step; a rank that joins has none to remove at first.
import torch

import horo.torch as horo

horo.init()
torch.manual_seed(5)
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.5)
optimizer = horo.DistributedOptimizer(optimizer, model.named_parameters())
sampler = horo.elastic.Sampler(300, batch_size=2)
loader = torch.utils.data.DataLoader(torch.randn(300, 6), batch_sampler=sampler)
state = horo.elastic.State(model=model, optimizer=optimizer, sampler=sampler, number=0)
part = None


@horo.elastic.run
def train(state):
    global part
    for _ in state.passes(1):
        for x in state.batches(loader):
            if part is not None:
                assert horo.remove_process_set(part)
            part = horo.add_process_set([0])
            state.number = part.process_set_id
            if part.included():
                horo.allreduce(torch.ones(1), process_set=part)
            horo.barrier()
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()


train(state)
