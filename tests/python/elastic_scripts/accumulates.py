# Two passes per step, counted by enumerate(); the validation loss decides on the best weights, which rank 0 keeps.
import copy

import torch

import horo.torch as horo

horo.init()
torch.manual_seed(horo.rank() + 1)
model = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = horo.DistributedOptimizer(optimizer, model.named_parameters(), backward_passes_per_step=2)
horo.broadcast_parameters(model.state_dict(), root_rank=0)
data = torch.utils.data.TensorDataset(torch.randn(360, 3, generator=torch.Generator().manual_seed(1)))
sampler = horo.elastic.Sampler(data, batch_size=3, drop_last=True)
loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
state = horo.elastic.State(model=model, optimizer=optimizer, sampler=sampler, best=None, best_loss=9e9)


@horo.elastic.run
def train(state):
    for epoch in state.passes(3):
        model.train()
        optimizer.zero_grad()
        for i, (x,) in enumerate(state.batches(loader)):
            model(x).square().mean().backward()
            if (i + 1) % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            loss = horo.allreduce(model(data.tensors[0]).square().mean()).item()
        if loss < state.best_loss:
            state.best_loss = loss
            state.best = copy.deepcopy([p.detach() for p in model.parameters()])


train(state)
