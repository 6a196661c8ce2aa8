"""The net of mnist.py as in Horovod's elastic examples. With --kill a rank is killed in a batch of epoch 1."""

import argparse
import os
import signal

import torch
import torch.nn.functional as F
from mnist import Digits, Net
from torch import optim

import horovod.torch as hvd

parser = argparse.ArgumentParser(description="Elastic PyTorch MNIST Example")
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--base-lr", type=float, default=0.05)
parser.add_argument("--batches-per-commit", type=int, default=4)
parser.add_argument("--batches-per-host-check", type=int, default=1)
parser.add_argument("--kill", type=int, nargs=2, metavar=("RANK", "BATCH"), default=(-1, -1))


def train(state):
    state.model.train()
    batch_offset = state.batch
    for idx, (data, target) in enumerate(train_loader):
        # Elastic Horovod: update the current batch index this epoch and commit / check for host updates.
        state.batch = batch_offset + idx
        if args.batches_per_commit > 0 and state.batch % args.batches_per_commit == 0:
            state.commit()
        elif args.batches_per_host_check > 0 and state.batch % args.batches_per_host_check == 0:
            state.check_host_updates()
        state.optimizer.zero_grad()
        loss = F.nll_loss(state.model(data), target)
        if state.epoch == 1 and (first_rank, state.batch) == tuple(args.kill):
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        state.optimizer.step()
        state.train_sampler.record_batch(idx, args.batch_size)
        seen.update(state.train_sampler.get_indices(idx, args.batch_size))


def end_epoch(state):
    everything = set().union(*hvd.allgather_object(seen, name="seen"))
    if hvd.rank() == 0:
        print(f"epoch {state.epoch}: {len(everything)} samples on {hvd.size()} ranks", flush=True)
    seen.clear()
    state.epoch += 1
    state.batch = 0
    state.train_sampler.set_epoch(state.epoch)
    state.commit()


@hvd.elastic.run
def full_train(state):
    while state.epoch < args.epochs:
        train(state)
        end_epoch(state)


def on_state_reset():
    # Horovod: the number of workers has changed, and with it the scaled learning rate.
    resets.append(hvd.size())
    for group in optimizer.param_groups:
        group["lr"] = args.base_lr * hvd.size()


if __name__ == "__main__":
    args = parser.parse_args()
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    first_rank, seen, resets = hvd.rank(), set(), []

    train_dataset = Digits(160)
    train_sampler = hvd.elastic.ElasticSampler(train_dataset)
    train_loader = torch.utils.data.DataLoader(train_dataset, batch_size=args.batch_size, sampler=train_sampler)
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=args.base_lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, train_sampler=train_sampler, epoch=0, batch=0)
    state.register_reset_callbacks([on_state_reset])
    full_train(state)
    loss = F.nll_loss(model(train_dataset.images), train_dataset.labels).item()
    print(f"rank {hvd.rank()}: loss {loss!r}, resets {resets}, lr {optimizer.param_groups[0]['lr']:.2f}", flush=True)
