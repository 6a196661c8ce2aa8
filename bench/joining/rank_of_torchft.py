"""A replica group of one rank of torchft: rank_of_torchft.py FOLDER BATCH GROUP GROUPS LEAST. It trains until it is
killed. The log: see model.py. The script is as torchft's example train_ddp.py; TORCHFT_LIGHTHOUSE is its lighthouse."""

import datetime
import sys

import model as shared


def main():
    log = shared.Log(sys.argv[1])
    log.mark("start", shared.started_ns())
    import torch
    import torchft

    log.mark("imported")
    batch, group, groups, least = map(int, sys.argv[2:6])
    data, model = shared.Rows(), shared.model()
    inner = shared.optimizer(model)
    log.mark("model")
    log.mark("ready")  # the others hear of a Manager

    def state_dict():
        return {"model": model.state_dict(), "optim": optimizer.state_dict()}

    def load_state_dict(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optim"])

    class Ddp(torchft.DistributedDataParallel):
        """That of torchft ends the survivors with an AssertionError where a rank dies in an all_reduce
        (meta-pytorch/torchft#294). In this one the manager alone has the error, as torchft intends."""

        @staticmethod
        def _comm_hook(manager, bucket):
            manager.allreduce(bucket.buffer()).wait()
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=datetime.timedelta(seconds=5)),
        load_state_dict=load_state_dict,
        state_dict=state_dict,
        min_replica_size=least,
        timeout=datetime.timedelta(seconds=10),
        replica_id=f"group_{group}",
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
    )
    net = Ddp(manager, model)
    optimizer = torchft.Optimizer(manager, inner)
    sampler = torchft.DistributedSampler(data, group, groups, group_rank=0, num_replicas=1, shuffle=True)
    loader = torch.utils.data.DataLoader(data, batch_size=batch, sampler=sampler, collate_fn=shared.same)
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(net(x), y).backward()
            counts, before = manager.is_participating(), manager.current_step()
            optimizer.step()
            log.step(counts and manager.current_step() > before, manager.num_participants())


if __name__ == "__main__":
    main()
