# Everything in main(), train() inside of it, a numpy array, dicts and lists in the state, a scheduler per pass,
# evaluation with a collective between the passes, the loader is made anew in each pass.
import numpy as np
import torch
from torch.utils.data import DataLoader

import horo.torch as horo
from horo.torch import elastic


def main():
    horo.init()
    torch.manual_seed(horo.rank())
    x = torch.randn(150, 5, generator=torch.Generator().manual_seed(3))
    y = (x.sum(1, keepdim=True) > 0).float()
    data = torch.utils.data.TensorDataset(x, y)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    optimizer = horo.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    horo.broadcast_parameters(model.state_dict(), root_rank=0)
    sampler = elastic.Sampler(data, batch_size=4)
    state = horo.elastic.State(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        sampler=sampler,
        confusion=np.zeros((2, 2), dtype=np.int64),
        history={"loss": [], "best": {"epoch": -1, "loss": float("inf")}},
        names=["a", ("b", 1.5)],
    )

    @elastic.run
    def train(state, passes, *, verbose):
        for epoch in state.passes(passes):
            loader = DataLoader(data, batch_sampler=state.sampler, num_workers=1)
            for features, labels in state.batches(loader):
                optimizer.zero_grad()
                out = model(features)
                torch.nn.functional.binary_cross_entropy_with_logits(out, labels).backward()
                optimizer.step()
            evaluate(state, epoch)
            if verbose and horo.rank() == 0:
                print(epoch, state.history["loss"][-1])
        return state.history["best"]["epoch"]

    def evaluate(state, epoch):
        with torch.no_grad():
            part = slice(horo.rank(), None, horo.size())
            out = model(x[part])
            sums = torch.stack([((out > 0).float() == y[part]).sum(), torch.tensor(len(out))]).double()
        right, count = horo.allreduce(sums, op=horo.Sum).tolist()
        loss = 1 - right / count
        state.confusion[0, 0] += int(right)
        state.history["loss"].append(loss)
        if loss < state.history["best"]["loss"]:
            state.history["best"] = {"epoch": epoch, "loss": loss}
        scheduler.step(loss)

    assert train(state, 4, verbose=True) == state.history["best"]["epoch"]


if __name__ == "__main__":
    main()
