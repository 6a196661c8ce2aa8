"""A recurrent language model with clipped gradients: synchronize(), clip, step() in skip_synchronize()."""

import argparse
import math

import torch
from torch import nn

import horovod.torch as hvd
from horovod.torch.mpi_ops import rank, size

parser = argparse.ArgumentParser(description="PyTorch Language Model")
parser.add_argument("--emsize", type=int, default=8)
parser.add_argument("--nhid", type=int, default=8)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--clip", type=float, default=0.25, help="gradient clipping")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--columns", type=int, default=8, help="parallel streams of words, over all workers")
parser.add_argument("--bptt", type=int, default=5, help="sequence length")
parser.add_argument("--seed", type=int, default=1111)

TEXT = "the cat sat on the mat and the dog sat on the log while the cat saw the dog and the dog saw the cat " * 6


class RNNModel(nn.Module):
    def __init__(self, ntoken):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, args.emsize)
        self.rnn = nn.LSTM(args.emsize, args.nhid)
        self.decoder = nn.Linear(args.nhid, ntoken)

    def forward(self, words, hidden):
        output, hidden = self.rnn(self.encoder(words), hidden)
        return self.decoder(output), hidden


def corpus():
    """Horovod: the vocabulary of rank 0 is the one that counts."""
    words = TEXT.split()
    vocabulary = hvd.broadcast_object(sorted(set(words)) if rank() == 0 else None, root_rank=0, name="vocabulary")
    return torch.tensor([vocabulary.index(word) for word in words]), len(vocabulary)


def train(batches):
    hidden, total = None, 0.0
    for i in range(0, len(batches) - 1, args.bptt):
        length = min(args.bptt, len(batches) - 1 - i)
        data, targets = batches[i : i + length], batches[i + 1 : i + 1 + length]
        optimizer.zero_grad()
        output, hidden = model(data, hidden)
        hidden = tuple(state.detach() for state in hidden)
        loss = criterion(output.reshape(-1, output.shape[-1]), targets.reshape(-1))
        loss.backward()
        # Horovod: the gradients are reduced before they are clipped.
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        with optimizer.skip_synchronize():
            optimizer.step()
        total += length * loss.item()
    return total / (len(batches) - 1)


if __name__ == "__main__":
    args = parser.parse_args()
    hvd.init()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    tokens, ntoken = corpus()
    rows = len(tokens) // args.columns
    batches = tokens[: rows * args.columns].view(args.columns, rows).t()
    batches = batches[:, rank() :: size()].contiguous()  # this worker's streams
    assert sum(hvd.allgather_object(batches.shape[1])) == args.columns
    model = RNNModel(ntoken)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for epoch in range(1, args.epochs + 1):
        loss = hvd.allreduce(torch.tensor(train(batches)), name="loss").item()
        if rank() == 0:
            print(f"| end of epoch {epoch} | loss {loss:.12f} | ppl {math.exp(loss):.9f}")
