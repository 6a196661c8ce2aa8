"""A rank of tools/soak survive --torch: trains a model in one of the ways of torch_ways.py, and prints a line that
survivors.py judges.

Arguments: the way, and the number of steps. Each gradient's memory is hashed when it is complete, and whenever the
rank is frozen until its round is delivered (kills_library.cc). At the end the rank trains the model again, alone, in
float64, with the data of the members of each round, and compares the parameters.
"""

import contextlib
import ctypes
import hashlib
import itertools
import os
import sys
import time

import torch
import torch._dynamo  # the first step() would import it
from torch_ways import WAYS

TOLERANCE = 1e-3  # of a parameter of about 1, after the steps in float32


def batch(member, number):
    data = torch.Generator().manual_seed(1000 * number + member)
    return torch.randn(4, 8, generator=data), torch.randn(4, 4, generator=data)


def base_optimizer(base, params):
    return base(params, lr=0.05, momentum=0.9) if base is torch.optim.SGD else base(params, lr=0.01)


def ids_of(mean, size):
    """The ids whose powers of 2 have this mean."""
    some = [ids for count in range(1, size + 1) for ids in itertools.combinations(range(size), count)]
    return min(some, key=lambda ids: abs(sum(2.0**one for one in ids) / len(ids) - mean))


class Rank:
    """The run of a rank."""

    def __init__(self, hvd, library, steps):
        self.hvd, self.library, self.count = hvd, library, steps
        self.id, self.size = int(os.environ["HORO_RANK"]), int(os.environ["HORO_SIZE"])
        self.ids = hvd.allgather(torch.tensor([self.id])).tolist()  # by present rank
        self.part_ids = None  # of the process set
        self.rounds = []  # the ids of each
        self.number = 0  # of the next batch
        self.watched = {}  # the memory of gradients that are submitted, by parameter
        self.models, self.digest, self.longest_s, self.freezes = [], hashlib.sha256(), 0.0, 0
        hvd.on_change(self._renumber)

    def _renumber(self, change):
        self.ids = [one for rank, one in enumerate(self.ids) if rank not in change.lost]

    def model(self, model):
        for param in model.parameters():
            param.register_post_accumulate_grad_hook(self._watch)
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        self.models.append(model)
        return model

    def _watch(self, param):
        gradient = param.grad
        self.watched[param] = gradient.data_ptr()
        self.library.horo_test_watch(ctypes.c_void_p(gradient.data_ptr()), ctypes.c_size_t(gradient.nbytes))

    def _end_watch(self):
        for param, address in self.watched.items():  # a gradient may have become a view, or another view
            self.library.horo_test_moved(ctypes.c_void_p(address), ctypes.c_void_p(param.grad.data_ptr()))
        self.watched.clear()
        return self.library.horo_test_end_watch()

    def optimizer(self, model, base=torch.optim.SGD, **options):
        optimizer = base_optimizer(base, model.parameters())
        if options.get("process_set", ()) is None:
            return optimizer
        return self.hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)

    def steps(self):
        for step in range(self.count):
            begin = time.monotonic()
            yield step
            self.longest_s = max(self.longest_s, time.monotonic() - begin)
            for model in self.models:
                for param in model.parameters():
                    self.digest.update(param.detach().numpy().tobytes())

    def _batch(self):
        self.number += 1
        return batch(self.id, self.number - 1)

    def accumulate(self, loss):
        loss(*self._batch()).backward()

    def backward(self, model, loss, scaler=None):
        before = 0.0 if model.who.grad is None else model.who.grad.item()
        total = loss(*self._batch()) + (model.who * 2.0**self.id).sum()
        (scaler.scale(total) if scaler else total).backward()
        frozen = self._end_watch()
        if frozen < 0:
            self.differs("a gradient was changed while it waited for the next epoch")
        self.freezes += max(frozen, 0)
        mean = (model.who.grad.item() - before) / (scaler.get_scale() if scaler else 1)
        self.rounds.append(ids_of(mean, self.size))

    def differs(self, text):
        print(f"member {self.id}: a result differs: {text}", flush=True)

    def no_sync(self, optimizer):
        return optimizer.no_sync()

    def skip_synchronize(self, optimizer):
        return optimizer.skip_synchronize()

    def synchronize(self, optimizer):
        optimizer.synchronize()

    # Collectives beside the rounds

    def collectives(self):
        ids = self.hvd.allgather(torch.tensor([self.id])).tolist()
        mean = self.hvd.allreduce(torch.tensor([2.0**self.id])).item()
        self.hvd.barrier()
        text = self._broadcast()
        self.digest.update(repr((ids, ids_of(mean, self.size), text)).encode())

    def _broadcast(self):
        while True:
            try:
                return self.hvd.broadcast(torch.tensor([float(self.number)]), root_rank=0).item()
            except self.hvd.PeerLost:
                pass  # on all ranks, when the root is lost

    # The way with a process set

    def first_set(self):
        self.part_ids = self.ids[:2] if len(self.ids) > 2 else self.ids[:1]
        return self._added()

    def _added(self):
        """The set of the present ranks with part_ids; None if there is none."""
        while True:
            ranks = [rank for rank, one in enumerate(self.ids) if one in self.part_ids]
            if not ranks:
                return None
            if len(ranks) == len(self.ids):
                return self.hvd.global_process_set
            try:
                return self.hvd.add_process_set(ranks)
            except (self.hvd.PeerLost, ValueError):
                self.hvd.barrier()  # the ranks that are left try again

    def next_set(self, part):
        if part is not None and part != self.hvd.global_process_set:
            self.hvd.remove_process_set(part)
        return self._added()

    def wrapped_anew(self, optimizer, model, part):
        again = self.optimizer(model, process_set=part)
        again.load_state_dict(optimizer.state_dict())
        return again

    def is_apart(self):
        return self.part_ids is not None and self.id not in self.part_ids

    def backward_in(self, part, model, loss):
        """Whether the round is done; not if the set has lost a member."""
        try:
            self.backward(model, loss)
        except self.hvd.PeerLost:
            self.number -= 1
            return False
        return True

    def all_are(self, flag):
        """Whether the round is done on all ranks; else those outside of the set run theirs again too."""
        done = bool(self.hvd.allreduce(torch.tensor([int(flag)]), op=self.hvd.Min).item())
        if flag and not done:
            self.number -= 1
            self.rounds.pop()
            if not self.is_apart():
                self.differs("a round of the process set is done here only")
        return done


class Oracle:
    """The same training in one process, in float64, without horo."""

    def __init__(self, rounds, steps):
        self.rounds, self.count = list(rounds), steps
        self.number, self.pending, self.models = 0, [], []

    def model(self, model):
        self.models.append(model.double())
        return model

    def optimizer(self, model, base=torch.optim.SGD, **_):
        return base_optimizer(base, model.parameters())

    def steps(self):
        return range(self.count)

    def accumulate(self, loss):
        self.pending.append((loss, self.number))
        self.number += 1

    def backward(self, model, loss, scaler=None):
        self.accumulate(loss)
        ids, params = self.rounds.pop(0), [param for one in self.models for param in one.parameters()]
        for member in ids:
            batches = [(one, [part.double() for part in batch(member, number)]) for one, number in self.pending]
            total = sum(one(x, y) for one, (x, y) in batches) + (model.who * 2.0**member).sum()
            total = (scaler.scale(total) if scaler else total) / len(ids)
            for param, gradient in zip(params, torch.autograd.grad(total, params, allow_unused=True)):
                if gradient is not None:
                    param.grad = gradient if param.grad is None else param.grad + gradient
        self.pending = []

    def no_sync(self, _):
        return contextlib.nullcontext()

    skip_synchronize = no_sync

    def synchronize(self, _):
        pass

    collectives = first_set = wrapped_anew = lambda *_: None

    def backward_in(self, _, model, loss):
        self.backward(model, loss)
        return True

    def all_are(self, flag):
        return flag


def differs_from_oracle(trained, rounds, way, steps):
    """The largest difference between parameters; raises IndexError if the way has more rounds."""
    oracle = Oracle(rounds, steps)
    expected = WAYS[way](oracle)
    if oracle.rounds:
        raise IndexError(f"{len(oracle.rounds)} rounds more than expected")
    pairs = zip(trained.parameters(), expected.parameters())
    return max((one.detach().double() - other.detach()).abs().max().item() for one, other in pairs)


def main():
    way, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    import horo.torch as hvd

    print("imported", flush=True)
    hvd.init()
    library = ctypes.CDLL(os.environ["HORO_LIBRARY"])
    rank = Rank(hvd, library, steps)
    trained = WAYS[way](rank)
    difference = differs_from_oracle(trained, rank.rounds, way, steps)
    if not difference < TOLERANCE:
        rank.differs(f"parameters differ by {difference:.2g} from those of the oracle")
    masks = [sum(1 << one for one in ids) for ids in rank.rounds]
    members = "".join(f"{mask}x{len(list(same))}," for mask, same in itertools.groupby(masks))
    apart = " apart" * rank.is_apart()
    print(
        f"survivor {rank.id}{apart} results {len(masks)} hash {rank.digest.hexdigest()[:16]} members {members} "
        f"longest {1000 * rank.longest_s:.0f} ms\n"
        f"hashed {rank.freezes}, differs {difference:.1e}",
        flush=True,
    )
    hvd.shutdown()
    library.horo_test_forget_kills()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
