"""Ranks that join call the functions of horo.on_change() and State.on_change() as the others do: equally often, with
the same numbers, and where the growth has been counted. Each rank is a thread with a session that is made up."""

import collections
import threading
import types

import pytest

import horo
from horo import _changes, _default, _growth
from horo.elastic import State, gathers
from horo.elastic.border import Border
from horo.torch.elastic.base import ObjectState

DEADLINE_S = 60
THEN = (0, 2, 3)  # the members before the growth: 1 of four is lost, as all have seen
BEFORE = types.SimpleNamespace(rank=3, size=4, epoch=0)  # what a rank that joins has seen until now


class Dies(Exception):
    pass


class Session:
    """What State and Border read of a session; its own world, too."""

    census, is_elastic, is_joiner, closed = None, True, False, False

    def __init__(self, job, me, members):
        self.job, self.me, self.members, self.world = job, me, members, self
        self.joins, self.calls, self.topology = collections.Counter(), 0, self
        self.epoch = 1 if me in THEN else 2

    rank = property(lambda self: self.members.index(self.me))
    size = property(lambda self: len(self.members))

    def ranks(self):
        return _changes.Ranks(self.rank, self.epoch, self.members)

    def see(self, members):
        if members == self.members:
            return
        old, self.members, self.epoch = self.ranks(), members, self.epoch + 1
        _changes.tell(_changes.between(old, self.ranks()))

    def grow(self):
        self.see(self.job.views[0])

    def joiners(self):
        return ()

    def transfer(self, rows, has_state):
        return types.SimpleNamespace(is_complete=not has_state, bytes=0, by_messages=0, text=b"")

    def synced(self, text):
        pass


class Job:
    """views: the members in the growth, and from each gather on in which others have died."""

    def __init__(self, views):
        self.views, self.rows = views, collections.defaultdict(dict)
        self.condition, self.local, self.told, self.errors = threading.Condition(), threading.local(), {}, []

    def gather(self, session, name, data):
        number = session.calls = session.calls + 1
        members = self.views[max(view for view in self.views if view <= number)]
        with _changes.held, self.condition:
            if session.me not in members:
                raise Dies
            self.rows[number][session.me] = data
            self.condition.notify_all()
            is_full = self.condition.wait_for(lambda: len(self.rows[number]) == len(members), DEADLINE_S)
            assert is_full, (session.me, name, number)
            session.see(members)
        return [self.rows[number][member] for member in members]

    def run(self, act):
        """act(session, me, joins, told) on each rank. Returns what functions of on_change() have told, by rank."""
        threads = [threading.Thread(target=self._rank, args=(act, me)) for me in {*THEN, *self.views[0]}]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self.errors, self.errors
        return self.told

    def _rank(self, act, me):
        joins = me not in THEN
        self.local.session = session = Session(self, me, self.views[0] if joins else THEN)
        self.local.told = told = []
        try:
            act(session, joins, told)
            self.told[me] = told
        except Dies:
            pass
        except BaseException as error:
            self.errors.append((me, error))


def act_of_state(session, joins, told):
    state = State(best=1, seed=False)
    state.on_change(lambda change: told.append((change._replace(rank=0), _growth.growths_of(session))))
    border = Border(session)
    if joins:
        state._join(border, BEFORE)
    else:
        state._begin(border)
        state._grow_if(True)


def act_of_horovods_state(session, joins, told):
    state = ObjectState(lambda value: value, lambda: session.rank, best=1)
    state._knows_joiners = True
    if joins:
        state._meet(BEFORE)
    else:
        state._grow()


VIEWS = {  # the members at the end follow
    "one joins": {0: (0, 2, 3, 4)},
    "two join": {0: (0, 2, 3, 4, 5)},
    "one of two that join dies": {0: (0, 2, 3, 4, 5), 1: (0, 2, 3, 4)},
    "a survivor dies": {0: (0, 2, 3, 4), 1: (2, 3, 4)},
    "both die while they get the state": {0: (0, 2, 3, 4, 5), 2: (2, 3, 4, 5), 3: (2, 3, 4)},
}


@pytest.mark.parametrize("act", [act_of_state, act_of_horovods_state])
@pytest.mark.parametrize("views", VIEWS)
def test_all_ranks_are_told_the_same(monkeypatch, views, act):
    job = Job(VIEWS[views])
    if act is act_of_horovods_state:  # has one gather
        job.views = {min(number, 1): members for number, members in job.views.items()}
    monkeypatch.setattr(gathers, "gather", job.gather)
    monkeypatch.setattr(_default, "session", lambda: job.local.session)

    def tell(change):
        job.local.told.append((change._replace(old_rank=0, rank=0), _growth.growths_of(job.local.session)))

    remove = horo.on_change(tell)
    try:
        told = job.run(act)
    finally:
        remove()
    members = job.views[max(job.views)]
    assert sorted(told) == list(members)
    assert all(told[me] == told[members[0]] for me in members), told
    changes, growths = zip(*told[members[0]])
    lost, joined = tuple(one for one in THEN if one not in members), tuple(one for one in members if one > 3)
    assert [(one.old_size, one.size) for one in changes] == [(3, len(members))] * len(changes)
    assert changes[0].lost == tuple(THEN.index(one) for one in lost)
    assert changes[0].joined == tuple(members.index(one) for one in joined)
    assert growths == (1,) * (2 if act is act_of_state else 1)
    if act is act_of_state:
        assert changes[1][:2] == (lost, joined)
