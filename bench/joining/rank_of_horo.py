"""A rank of horo: rank_of_horo.py FOLDER BATCH. It trains until the job is ended. The log: see model.py."""

import sys

import model as shared


def main():
    log = shared.Log(sys.argv[1])
    log.mark("start", shared.started_ns())
    import torch

    import horo.torch as horo

    log.mark("imported")
    data, model = shared.Rows(), shared.model()
    optimizer = shared.optimizer(model)
    log.mark("model")
    horo.init()
    optimizer = horo.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    horo.broadcast_parameters(model.state_dict(), root_rank=0)
    sampler = horo.elastic.Sampler(len(data), batch_size=int(sys.argv[2]), seed=shared.SEED)
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, collate_fn=shared.same)
    state = horo.elastic.State(model=model, optimizer=optimizer, sampler=sampler)

    @horo.elastic.run
    def train(state):
        for _ in state.passes(1 << 20):
            for x, y in state.batches(loader):
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
                log.step(True, horo.size())

    log.mark("ready")
    train(state)


if __name__ == "__main__":
    main()
