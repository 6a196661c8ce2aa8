# Two models, two optimizers, a progress bar of my own around the batches, enumerate.
import torch
import torch.nn as nn

import horo.torch as horo

horo.init()
torch.manual_seed(0)


class Bar:
    def __init__(self, iterable, total):
        self.iterable, self.total = iterable, total

    def __len__(self):
        return self.total

    def __iter__(self):
        for n, item in enumerate(self.iterable):
            if horo.rank() == 0 and n % 10 == 0:
                print(f"{n}/{self.total}")
            yield item


generator = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(16, 1))
opt_g = horo.DistributedOptimizer(torch.optim.Adam(generator.parameters(), 1e-3), generator.named_parameters())
opt_c = horo.DistributedOptimizer(torch.optim.RMSprop(critic.parameters(), 1e-3), critic.named_parameters())
points = torch.utils.data.TensorDataset(torch.randn(240, 2) + 3)
sampler = horo.elastic.Sampler(points, batch_size=4)
loader = torch.utils.data.DataLoader(points, batch_sampler=sampler, num_workers=2)
state = horo.elastic.State(
    generator=generator, critic=critic, opt_g=opt_g, opt_c=opt_c, sampler=sampler, losses=[], buffers="mean"
)


@horo.elastic.run
def train(state):
    loss_fn = nn.BCEWithLogitsLoss()
    for epoch in state.passes(3):
        batches = state.batches(loader)
        for i, (real,) in enumerate(Bar(batches, len(batches))):
            noise = torch.randn(len(real) + 1, 4)
            opt_c.zero_grad()
            fake = generator(noise)
            ones, zeros = torch.ones(len(real), 1), torch.zeros(len(fake), 1)
            (loss_fn(critic(real), ones) + loss_fn(critic(fake.detach()), zeros)).backward()
            opt_c.step()
            if state.step % 2 == 0:
                opt_g.zero_grad()
                opt_c.zero_grad()
                loss = loss_fn(critic(fake), torch.ones(len(fake), 1))
                loss.backward(inputs=list(generator.parameters()))
                opt_g.step()
                state.losses = [*state.losses, horo.allreduce(loss.detach()).item()]


train(state)
