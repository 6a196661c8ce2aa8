# A learning rate that follows the number of ranks by horo.on_change(), whose function runs collectives.
import torch

import horo.torch as horo

horo.init()
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01 * horo.lr_scale(), momentum=0.5)
optimizer = horo.DistributedOptimizer(optimizer, model.named_parameters())
horo.broadcast_parameters(model.state_dict(), root_rank=0)
sampler = horo.elastic.Sampler(120, 2)
loader = torch.utils.data.DataLoader(torch.randn(120, 2), batch_sampler=sampler)
state = horo.elastic.State(model=model, optimizer=optimizer, sampler=sampler)


@horo.on_change
def rescale(change):
    for group in optimizer.param_groups:
        group["lr"] *= change.size / change.old_size
    horo.join()
    assert horo.allreduce(torch.ones(1), op=horo.Sum).item() == change.size


@horo.elastic.run
def train(state):
    for _ in state.passes(2):
        for x in state.batches(loader):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    return horo.size()


size = train(state)
assert abs(optimizer.param_groups[0]["lr"] - 0.01 * size) < 1e-12, optimizer.param_groups[0]["lr"]
