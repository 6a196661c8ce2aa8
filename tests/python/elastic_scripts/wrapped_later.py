# The optimizer is given to the State before it is wrapped.
import torch

import horo.torch as horo

horo.init()
torch.manual_seed(2)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
sampler = horo.elastic.Sampler(300, 2)
state = horo.elastic.State(model=model, optimizer=optimizer, sampler=sampler)
optimizer = horo.DistributedOptimizer(optimizer, model.named_parameters())
loader = torch.utils.data.DataLoader(torch.randn(300, 2), batch_sampler=sampler)


@horo.elastic.run
def train(state):
    for _ in state.passes(3):
        for x in state.batches(loader):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()


train(state)
