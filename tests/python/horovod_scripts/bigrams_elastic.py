"""Predicts the next character of a text by bigrams: weights and an update by hand in an ObjectState, commits in every
third batch, a learning rate that follows the number of workers, a metric that is averaged. With --kill workers kill
themselves in a batch; an epoch does not end before others have taken their places."""

import argparse
import hashlib
import os
import signal
import time

import torch

import horovod.torch as hvd

TEXT = ("the quick brown fox jumps over the lazy dog and the cat watches the fox jump " * 6).strip()
SYMBOLS = sorted(set(TEXT))
CODES = torch.tensor([SYMBOLS.index(c) for c in TEXT])
LR = 0.02

parser = argparse.ArgumentParser()
parser.add_argument("--kill", type=int, nargs=2, action="append", metavar=("WORKER", "BATCH"), default=[])
parser.add_argument("--workers", type=int, default=3)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batches", type=int, default=20)
args = parser.parse_args()


def gradient_of(weights, batch):
    """Of five characters, others on each worker."""
    first = (batch * hvd.size() + hvd.rank()) * 5 % (len(TEXT) - 6)
    x, y = CODES[first : first + 5], CODES[first + 1 : first + 6]
    p = torch.softmax(weights[x], 1)
    p[torch.arange(5), y] -= 1
    return torch.zeros_like(weights).index_add_(0, x, p)


@hvd.elastic.run
def train(state):
    calls.append((state.epoch, state.batch, hvd.size()))
    while state.epoch < args.epochs:
        while state.batch < args.batches:
            gradient = gradient_of(state.weights, state.batch)
            if [worker, args.batches * state.epoch + state.batch] in args.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            gradient = hvd.allreduce(gradient, name="gradient", op=hvd.Average)
            state.velocity = 0.9 * state.velocity + gradient
            state.weights = state.weights - state.lr * state.velocity
            state.batch += 1
            state.rates.append(state.lr)
            if state.batch % 3 == 0:
                norm = hvd.allreduce(gradient.double().norm(), name="norm", op=hvd.Max)
                state.norms[state.epoch, state.batch] = norm.item()
                state.commit()
            else:
                state.check_host_updates()
        while hvd.size() < args.workers:
            time.sleep(0.02)
            state.check_host_updates()
        state.epoch, state.batch = state.epoch + 1, 0
        state.commit()
    return state.epoch


def on_reset():
    sizes.append(hvd.size())
    state.lr = LR * hvd.size()


hvd.init()
torch.set_num_threads(1)
worker, calls, sizes = int(os.environ["HORO_RANK"]), [], []
torch.manual_seed(worker)
state = hvd.elastic.ObjectState(
    bcast_object=hvd.broadcast_object,
    get_rank=hvd.rank,
    weights=torch.randn(len(SYMBOLS), len(SYMBOLS)) / 10,
    velocity=torch.zeros(len(SYMBOLS), len(SYMBOLS)),
    lr=LR * hvd.size(),
    epoch=0,
    batch=0,
    rates=[],
    norms={},
)
state.register_reset_callbacks([on_reset])
assert train(state) == args.epochs
content = state.weights.numpy().tobytes() + state.velocity.numpy().tobytes()
digest = hashlib.sha256(content + repr((state.rates, sorted(state.norms.items()))).encode()).hexdigest()[:16]
loss = torch.nn.functional.cross_entropy(state.weights[CODES[:-1]], CODES[1:]).item()
print(f"end {hvd.size()} workers, {len(state.rates)} batches, {len(state.norms)} norms, {digest}, loss {loss:.3f}")
print(f"resets {sizes}")
