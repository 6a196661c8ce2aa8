"""An elastic job on devices: rank 1 is killed in the tenth step; the others go on with equal bits."""

import os
import signal

import place
import torch
from place import DEVICE, bytes_of

import horo.torch as hvd

place.start()
ID = hvd.rank()
torch.manual_seed(7)
model = torch.nn.Linear(50, 50).to(DEVICE)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.01), model.named_parameters())
for step in range(30):
    optimizer.zero_grad()
    generator = torch.Generator().manual_seed(10 * step + ID)
    loss = model(torch.randn(8, 50, generator=generator).to(DEVICE)).square().mean()
    if step == 10 and ID == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
    optimizer.step()
every = hvd.allgather_object(b"".join(map(bytes_of, model.parameters())))
place.tell(ranks=hvd.size(), bits_alike=len(set(every)) == 1)
hvd.shutdown()
