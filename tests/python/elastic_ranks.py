"""Ranks of a job that grows and shrinks, in one process: each has its own State, Sampler and loader. A Job says at each
border which members have contributed, as a Census would, and which join."""

import random

from horo.elastic import Changed, Sampler, State
from horo.elastic.border import Border
from horo.elastic.fields import from_json, to_json


class Session:
    """What a Border reads of a session."""

    census = None
    is_joiner = False
    is_elastic = True

    def __init__(self, members, me):
        self.world = self
        self.members = members
        self.topology = self
        self.rank, self.size = members.index(me), len(members)

    def end_early(self):
        """None is early here."""


class OneProcessBorder(Border):
    """The border of one rank of a Job."""

    def __init__(self, job, members, me):
        self._job = job
        super().__init__(Session(members, me))
        self._census = None
        self.counts = True

    def count_batch(self, counts):
        self.counts = counts

    def settle(self, is_end=False):
        return self._job.contributors, bool(self._job.joining)

    def grow(self, give, step):
        before, self.members = self.members, self._job.after_growth()
        lost = tuple(one for one in before if one not in self.members)
        joined = tuple(one for one in self.members if one not in before)
        return Changed(lost, joined, len(before), len(self.members), self.members.index(self.me), step)


class Rank:
    """One rank. loader_of(sampler): makes its loader."""

    def __init__(self, job, me, members, rest=None):
        self.me = me
        self.sampler = Sampler(job.length, job.batch_size, job.seed)
        self.state = State(sampler=self.sampler, seed=False)
        self.border = OneProcessBorder(job, members, me)
        self.loader = job.loader_of(self.sampler)
        if rest is not None:
            fields = self.state._fields()
            for field in fields:
                field.prepare(rest["fields"][field.name])
            self.state._take(fields, rest)
        self.state._begin(self.border)
        self.steps = self._steps(job.passes)

    def close(self):
        """The rank has died, or its passes are over. Workers that persist end."""
        self.steps.close()
        iterator = getattr(self.loader, "_iterator", None)
        if iterator is not None:
            iterator._shutdown_workers()

    def _steps(self, passes):
        """Yields (pass, indices of its batch, whether they count)."""
        for number in self.state.passes(passes):
            for batch in self.state.batches(self.loader):
                yield number, [int(index) for index in batch], self.border.counts


class Job:
    """Drives the ranks step by step. committed: for each pass the indices that were contributed in committed rounds."""

    def __init__(self, shape, size, passes, seed, loader_of):
        """shape: samples, batch size."""
        self.length, self.batch_size = shape
        self.passes, self.seed, self.loader_of = passes, seed, loader_of
        self.random = random.Random(seed)
        self.joining, self._next = (), size
        self.contributors = frozenset(range(size))
        self.committed = [[] for _ in range(passes)]
        self.batches = []  # for each round: {member: number of samples}
        self.events = 0
        self.ranks = {me: Rank(self, me, tuple(range(size))) for me in range(size)}
        self._rests = []

    def after_growth(self):
        """The members after a growth: the ranks that are here, and those that join."""
        if not self._rests:
            rank = next(iter(self.ranks.values()))
            self._rests.append(from_json(to_json(rank.state._rest(rank.state._fields()))))
            self._grown = (*sorted(self.ranks), *self.joining)
        return self._grown

    def run(self, chance, most):
        """chance: of an event in a step. most: ranks. Returns when all passes are over."""
        while (steps := self._next_steps()) is not None:
            self.step(steps, chance, most)
        for rank in self.ranks.values():
            rank.close()

    def _next_steps(self):
        steps = {me: next(rank.steps, None) for me, rank in self.ranks.items()}
        for rest in self._rests:  # there was a border at which ranks have joined
            for me in self.joining:
                self.ranks[me] = Rank(self, me, self._grown, rest)
                steps[me] = next(self.ranks[me].steps, None)
            self.joining = ()
        self._rests = []
        ended = [step is None for step in steps.values()]
        assert all(ended) or not any(ended), steps
        return None if all(ended) else steps

    def step(self, steps, chance, most):
        lost, late = set(), set()  # before this round was committed, and right after
        if self.random.random() < chance and len(self.ranks) > 1:
            self.events += 1
            some = self.random.sample(sorted(self.ranks), self.random.randint(1, len(self.ranks) - 1))
            (lost if self.random.random() < 0.7 else late).update(some[: self.random.randint(1, 2)])
        if self.random.random() < chance and len(self.ranks) + len(self.joining) < most:
            self.events += 1
            count = self.random.randint(1, most - len(self.ranks) - len(self.joining))
            self.joining = (*self.joining, *range(self._next, self._next + count))
            self._next += count
        self.contributors = frozenset(self.ranks) - lost
        for me in self.contributors:
            number, indices, counts = steps[me]
            self.committed[number] += indices if counts else []
        self.batches.append({me: len(step[1]) for me, step in steps.items()})
        for me in lost | late:
            self.ranks.pop(me).close()
