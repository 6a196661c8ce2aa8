"""Repeats in one process what the ranks of learn_worker.py have trained: `python learn_oracle.py WAY FILE`, where FILE
has the log of a rank that was there all the time, and the batches of all ranks. Prints the hashes of learn_model.py.

The gradients of each member are computed one after the other, and summed in the canonical tree over the members. With
SyncBatchNorm the members run as threads, one at a time, because their passes exchange values. horo has no part in it
but for the seeds of the random generators and the formulas of SyncBatchNorm."""

import copy
import functools
import json
import sys
import threading

import torch
from learn_model import SEED, WAYS, Training, factor_of, samples
from torch import nn

from horo.elastic.generators import seed_all


def tree(values, ids):
    """The sum in the canonical tree: split at the highest bit in which the ids differ."""
    if len(ids) == 1:
        return values[ids[0]]
    bit = (ids[0] ^ ids[-1]).bit_length() - 1
    low, high = ([one for one in ids if one >> bit & 1 == side] for side in (0, 1))
    return tree(values, low) + tree(values, high)


def reduced(parts, size, distributed):
    """The result for tensors by rank, of which some may be absent."""
    divisor = 1 if distributed.get("op") == "Sum" else size
    before = distributed.get("gradient_predivide_factor", 1.0)
    if distributed.get("compression") == "fp16":
        decoded = {rank: part.half().float() for rank, part in parts.items()}
        return (tree(decoded, sorted(decoded)) / divisor).half().float()
    if before != 1.0:
        scaled = {rank: part * torch.tensor(1.0 / before) for rank, part in parts.items()}
        return (tree(scaled, sorted(scaled)) / divisor) * torch.tensor(before)
    return tree(parts, sorted(parts)) / divisor


class Lockstep:
    """Threads of the members of one step, which meet in each exchange of SyncBatchNorm."""

    def __init__(self, ranks):
        self.ranks, self.mine = ranks, threading.local()
        self.barrier = threading.Barrier(len(ranks))
        self.given = {}

    def exchange(self, value, combine):
        """combine(values by rank) on all of them."""
        self.given[self.mine.rank] = value
        self.barrier.wait()
        result = combine(dict(self.given))
        self.barrier.wait()
        return result

    def run(self, calls):
        """The results of calls by rank, each in a thread of its own."""
        results = {}

        def one(rank):
            self.mine.rank = rank
            try:
                results[rank] = calls[rank]()
            except BaseException:
                self.barrier.abort()
                raise

        threads = [threading.Thread(target=one, args=[rank]) for rank in self.ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


class Oracle:
    """One training, and for each member its buffers and its average of the model, which may differ."""

    def __init__(self, way, takes):
        """takes: {(step, member): indices}"""
        self.way, self.takes, self.data = way, takes, samples()
        self.norm = nn.BatchNorm1d
        if way.is_sync:
            self._make_sync()
        self.training = Training(way, self.norm)
        self.replicas, self.known = {}, ()
        self.last_step = self.rounds = 0
        self.parts = {}

    def _make_sync(self):
        from horo.torch import sync_batch_norm

        sync_batch_norm.synchronize = lambda value: value
        sync_batch_norm.ops = self
        sync_batch_norm.check = lambda process_set: None
        self.norm = functools.partial(sync_batch_norm.SyncBatchNorm, process_set=self)

    # What SyncBatchNorm calls: of the process set, and of horo.torch.ops

    def members(self):
        """The number of ranks that a rank knows when it begins a batch: one that has died since is among them."""
        return len(self.known)

    def included(self):
        return True

    def __deepcopy__(self, memo):
        return self

    def allgather_async(self, row, name, process_set):
        return self.lockstep.exchange(row, lambda rows: torch.cat([rows[rank] for rank in sorted(rows)]))

    def allreduce_async(self, sums, name, op, process_set):
        return self.lockstep.exchange(sums, lambda parts: tree(parts, sorted(parts)))

    # The log

    def replica(self, member):
        """(model, average) of a member; the parameters of the models are those of the training."""
        if member not in self.replicas:
            self.clone(member, self.training.model, self.training.averaged)
        return self.replicas[member]

    def clone(self, member, model, averaged):
        memo = {id(param): param for param in self.training.model.parameters()}
        self.replicas[member] = copy.deepcopy(model, memo), copy.deepcopy(averaged)

    def change(self, members, joined):
        self.known = members
        for member in joined:
            first = next(one for one in members if one not in joined)
            self.clone(member, *self.replica(first))

    def mean(self, members):
        """The statistics of all members are averaged."""
        pairs = [self.replica(member) for member in members]
        of_member = [[norm for one in reversed(pair) for norm in one.modules() if hasattr(norm, "running_mean")]
                     for pair in pairs]  # fmt: skip
        for norms in zip(*of_member):
            for name in ("running_mean", "running_var"):
                parts = dict(enumerate(getattr(norm, name) for norm in norms))
                value = tree(parts, list(parts)) / len(parts)
                for norm in norms:
                    getattr(norm, name).copy_(value)
            count = max(int(norm.num_batches_tracked) for norm in norms)
            for norm in norms:
                norm.num_batches_tracked.fill_(count)

    def gradients(self, member, step):
        """Of the batch that this member has taken in this step."""
        model, _ = self.replica(member)
        seed_all(SEED, member, step)
        loss = model(self.data[self.takes[step, member]], member, factor_of(self.rounds))
        return torch.autograd.grad(self.training.scaler.scale(loss), list(self.training.model.parameters()))

    def round(self, step, contributors, members):
        sums, self.known = {}, self.known or members
        for one in range(self.last_step + 1, step + 1):
            ranks = [rank for rank, member in enumerate(members) if (one, member) in self.takes]
            self.lockstep = Lockstep(ranks)
            calls = {rank: functools.partial(self.gradients, members[rank], one) for rank in ranks}
            found = self.lockstep.run(calls) if self.way.is_sync else {rank: calls[rank]() for rank in ranks}
            for rank, gradients in found.items():
                if members[rank] in contributors:
                    before = sums.get(rank)
                    sums[rank] = [a + b for a, b in zip(before, gradients)] if before else gradients
        for place, param in enumerate(self.training.model.parameters()):
            parts = {rank: gradients[place] for rank, gradients in sums.items()}
            param.grad = reduced(parts, len(members), self.way.distributed)
        others = {member: pair for member, pair in self.replicas.items() if member in members}
        self.training.update()
        for model, averaged in others.values():
            averaged.update_parameters(model)
        self.last_step, self.rounds, self.known = step, self.rounds + 1, members


def main():
    torch.set_num_threads(1)
    way = WAYS[sys.argv[1]]
    with open(sys.argv[2], encoding="utf-8") as file:
        told = json.load(file)
    takes = {(step, member): indices for step, member, indices in told["takes"]}
    oracle = Oracle(way, takes)
    with torch.no_grad():
        for what, *rest in told["log"]:
            if what == "round":
                with torch.enable_grad():
                    oracle.round(*rest)
            else:
                getattr(oracle, what)(*rest)
    model, averaged = oracle.replica(told["member"])
    training = oracle.training
    training.model, training.averaged = model, averaged
    print(json.dumps(training.digests()))


if __name__ == "__main__":
    main()
