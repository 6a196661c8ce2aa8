# Broadcasts of parameters and optimizer at the top of the function, as in examples for a fixed number of ranks.
import torch

import horo.torch as horo

horo.init()
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.5)
optimizer = horo.DistributedOptimizer(optimizer, model.named_parameters())
sampler = horo.elastic.Sampler(400, 2)
loader = torch.utils.data.DataLoader(torch.randn(400, 2), batch_sampler=sampler)
state = horo.elastic.State(model=model, optimizer=optimizer, sampler=sampler)


@horo.elastic.run
def train(state):
    horo.broadcast_parameters(model.state_dict(), root_rank=0)
    horo.broadcast_optimizer_state(optimizer, root_rank=0)
    for _ in state.passes(2):
        for x in state.batches(loader):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()


train(state)
