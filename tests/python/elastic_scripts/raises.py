# A bad sample raises on one rank, and another rank gets a Ctrl-C of its own: both are replaced. Odd fields.
import os
import signal

import torch

import horo.torch as horo

horo.init()
me = int(os.environ["HORO_RANK"])
torch.manual_seed(0)
net = torch.nn.Linear(2, 2)
opt = horo.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1), net.named_parameters())
sampler = horo.elastic.Sampler(400, batch_size=2)
loader = torch.utils.data.DataLoader(torch.randn(400, 2), batch_sampler=sampler)
state = horo.elastic.State(net=net, opt=opt, sampler=sampler, last=None, pair=(1, {"x"}), text="")


@horo.elastic.run
def fit(state):
    for epoch in state.passes(2):
        for x in state.batches(loader):
            if me == 0 and state.step == 9:
                raise ValueError("bad sample")
            if me == 1 and state.step == 14:
                os.kill(os.getpid(), signal.SIGINT)
            opt.zero_grad()
            net(x).square().sum().backward()
            opt.step()
            state.last = net.weight.detach().clone()
            state.text = f"{epoch} {state.step}"


fit(state)
