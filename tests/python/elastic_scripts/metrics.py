# A thread reduces metrics while the main thread trains; gradients are accumulated in no_sync() and clipped; a warm-up
# scheduler in each step.
import queue
import threading

import torch

import horo.torch as horo

horo.init()
torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20)
optimizer = horo.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
data = torch.randn(320, 6)
sampler = horo.elastic.Sampler(320, batch_size=2)
loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, num_workers=1, persistent_workers=True)
state = horo.elastic.State(model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler)
losses, means = queue.Queue(), []


def reduce_losses():
    while (found := losses.get()) is not None:
        step, loss = found
        means.append(horo.allreduce(torch.tensor([loss]), name=f"loss.{step}").item())
        losses.task_done()


thread = threading.Thread(target=reduce_losses)
thread.start()


@horo.elastic.run
def train(state):
    for number in state.passes(2):
        for i, x in enumerate(state.batches(loader)):
            if state.step % 2:
                optimizer.zero_grad()
                with optimizer.no_sync():
                    model(x).square().mean().div(2).backward()
                continue
            loss = model(x).square().mean().div(2)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.put((state.step, loss.item()))
            optimizer.zero_grad()
            scheduler.step()
            losses.join()  # a rank that joins after this batch takes no part in its metrics


train(state)
losses.put(None)
thread.join()
assert means
