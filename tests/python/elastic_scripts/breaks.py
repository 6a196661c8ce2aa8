# A break in all ranks after some batches; the same state is trained again, and then once more. The first State is made
# before the optimizer is wrapped, and another one of its fields after that.
import torch

import horo.torch as horo

horo.init()
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
state = horo.elastic.State(model=model, sampler=horo.elastic.Sampler(400, 2, seed=1), seen=0, done=torch.zeros(3))
optimizer = horo.DistributedOptimizer(optimizer, model.named_parameters())
state = horo.elastic.State(
    model=state.model, optimizer=optimizer, sampler=state.sampler, seen=state.seen, done=state.done
)
data = torch.randn(400, 3)
loader = torch.utils.data.DataLoader(data, batch_sampler=state.sampler)


def step(x):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    state.seen += 1


@horo.elastic.run
def train(state, passes):
    for p in state.passes(passes):
        for i, x in enumerate(state.batches(loader)):
            step(x)
            if state.step % 6 == 0:
                break
        state.done[0] += 1


train(state, 12)
assert state.done[0] == 12
train(state, 14)
assert state.done[0] == 14
with torch.no_grad():
    model.weight *= horo.size()
train(state, 16)
