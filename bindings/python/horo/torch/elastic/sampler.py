"""ElasticSampler: deals the samples of an epoch to the ranks, and deals what is left anew when ranks are lost."""

import itertools
import random

from torch.utils.data import Sampler

from horo._default import rank, size

PART = "rank num_replicas remaining_indices num_samples total_size indices".split()  # not changed


class ElasticSampler(Sampler):
    """The indices of this rank's part of the data set. Each rank gets the same number; the first ones of the epoch's
    order fill up what is missing. A script records the batches that it has processed, and gives the sampler to
    TorchState: after a change of ranks it deals the samples that no rank has processed. Call set_epoch() at the end of
    an epoch, not at the beginning: it forgets what was processed."""

    def __init__(self, dataset, shuffle=True, seed=0):
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_indices = set()
        self.is_in_state = False  # its state says when the numbers of ranks change, on all ranks at the same time
        self.deal_to(rank(), size())

    def set_epoch(self, epoch):
        """The next epoch begins: nothing is processed, and with shuffle the order is another one."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    @property
    def processed_num(self):
        """The number of samples that all ranks have processed, as state_dict() tells them; Horovod's later versions
        keep it in place of the indices."""
        return len(self._processed_by_all())

    def _processed_by_all(self):
        """What all ranks have processed, if each has processed the same places of its part as this one."""
        order, count = self.remaining_indices, self.num_replicas
        places = (place for place, index in enumerate(self.indices) if index in self.processed_indices)
        return self.processed_indices.union(*(order[place * count : (place + 1) * count] for place in places))

    def record_batch(self, batch_idx, batch_size):
        """This rank has processed the batch of this number of its present part."""
        self.record_indices(self.get_indices(batch_idx, batch_size))

    def record_indices(self, indices):
        """This rank has processed these samples."""
        self.processed_indices.update(indices)

    def get_indices(self, batch_idx, batch_size):
        """The samples of the batch of this number of its present part."""
        if batch_idx < 0 or batch_size < 1:
            raise ValueError(f"ElasticSampler: batch {batch_idx} of {batch_size}: expected at least 0, and at least 1")
        return self.indices[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    def state_dict(self):
        """Of all ranks, if each has processed the same places of its part as this one: a checkpoint of one rank serves
        all. Has both of Horovod's forms, the indices and their number."""
        processed = self._processed_by_all()
        return {"epoch": self.epoch, "processed_indices": processed, "processed_num": len(processed)}

    def own_state(self):
        """What this rank has processed."""
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def load_state_dict(self, state_dict):
        """Takes both of Horovod's forms. A number that is larger than that of the indices, as in a state that tells the
        indices of one rank, stands for the first ones of the epoch's order."""
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict.get("processed_indices", ()))
        if (number := state_dict.get("processed_num", 0)) > len(self.processed_indices):
            self.processed_indices.update(self._order()[:number])
        self.reset()

    def reset(self):
        """Deals what is not processed to the present ranks; in a state, to those that all ranks have agreed on."""
        if self.is_in_state:
            self._deal()
        else:
            self.deal_to(rank(), size())

    def deal_to(self, number, count):
        """Deals what is not processed to this number of ranks."""
        self.rank, self.num_replicas = number, count
        self._deal()

    def part(self):
        """What take_part() goes back to: the part of this rank, and what is processed."""
        return {name: getattr(self, name) for name in PART} | self.own_state()

    def take_part(self, part):
        vars(self).update(part, processed_indices=set(part["processed_indices"]))

    def _deal(self):
        self.remaining_indices = [i for i in self._order() if i not in self.processed_indices]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        dealt = itertools.cycle(self.remaining_indices)
        self.indices = list(itertools.islice(dealt, self.rank, self.total_size, self.num_replicas))

    def _order(self):
        """All indices in the order of the epoch. Each deal keeps it: so what is processed is the beginning of it, as
        long as the ranks take equally many batches."""
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        return order

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return self.num_samples
