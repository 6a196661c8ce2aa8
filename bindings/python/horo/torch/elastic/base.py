"""State: what a function of elastic.run goes on with. All ranks commit it, and learn of changes, at the same call.

Ranks that are ready to join come in at the end of commit() and check_host_updates(), when all ranks know of them: all
end the epoch there, and a gather in the next one says which ranks are new. HostsUpdatedInterrupt follows on all ranks;
a rank that has joined begins with what follows it: the reset callbacks, and sync().

Ranks may see the loss of a rank one call apart. So commit() and check_host_updates() count the ranks in a collective:
all ranks that are left get the same number, and either all of them raise HostsUpdatedInterrupt or none.
"""

import copy
import math
import pickle
import typing

import torch

from horo import _default, _growth, elastic
from horo._changes import Growing, Ranks
from horo._marks import CHECKPOINT, marked
from horo._specs import Sum
from horo.elastic import gathers
from horo.elastic.fields import from_json, to_json
from horo.errors import HostsUpdatedInterrupt, Mismatch, PeerLost
from horo.torch import ops
from horo.torch.functions import allgather_object

REMOVED, ADDED = 1, 2  # bits of Horovod's HostUpdateResult
CALLS = COMMIT, CHECK, START = range(3)
TEXTS = ("commit() number {}", "check_host_updates() after {} commits", "the start of its function after {} commits")
COMMITS = 1 << 20  # the exchange compares the number of commits modulo this


class GoBack(PeerLost):
    """Another rank has told this one, in a call of the State, that all go back to the last commit."""


class Agreed(typing.NamedTuple):
    """What all ranks know after their exchange."""

    updates: int  # REMOVED: ranks are gone since the last exchange, or a rank was told so; ADDED: a rank was told so
    goes_back: bool  # a rank has an exception of a loss that not all have gone back for
    is_same: bool  # all ranks that have none are at the same call
    knows_joiners: bool  # a rank knows of ranks that are ready to join


class State:
    """Base of states. A subclass has save(), restore(), sync() and, if it needs one, reset(). State(name=value, ...),
    with fields alone, makes a horo.elastic.State."""

    def __new__(cls, *args, **fields):
        if cls is State and fields and not args and "bcast_object" not in fields:
            return elastic.State(**fields)
        return super().__new__(cls)

    def __init__(self, bcast_object, get_rank):
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks = []
        self._commits = 0
        self._size = None  # the number of ranks in the last exchange
        self._restored_size = math.inf  # that in the exchange before the last restore
        self._restored_epoch = 0  # that in which this rank has gone back
        self._last_updated_timestamp = 0
        self._told = 0  # by on_hosts_updated()
        self._knows_joiners = False  # all ranks have heard of ranks that are ready, in the last exchange

    def register_reset_callbacks(self, callbacks):
        """Functions without arguments, which are called on all ranks after each change of ranks."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self):
        """Called after a change of ranks, before the function runs again: reset(), then the reset callbacks."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp, update_res):
        """The next commit() or check_host_updates() raises HostsUpdatedInterrupt. update_res: 1 hosts were removed, 2
        added, 3 both. horo itself does not call this: it sees which ranks there are."""
        if timestamp > self._last_updated_timestamp:
            self._last_updated_timestamp = timestamp
            self._told |= update_res

    def commit(self):
        """Saves the state, if all ranks have come to this call, and then does what check_host_updates() does. Blocks
        until all ranks call it."""
        updates = self._ask(COMMIT)
        with marked(CHECKPOINT):
            self.save()
        self._commits += 1
        _interrupt(updates | self._grow())

    def check_host_updates(self):
        """Raises HostsUpdatedInterrupt, on all ranks, if one of them has seen a change of ranks, or if ranks have
        joined in this call. Blocks until all ranks call it."""
        updates = self._ask(CHECK)
        _interrupt(updates | self._grow())

    def save(self):
        """Keeps the present state in memory."""
        raise NotImplementedError

    def restore(self):
        """Goes back to what was saved."""
        raise NotImplementedError

    def sync(self):
        """Gives all ranks the state of rank 0."""
        raise NotImplementedError

    def reset(self):
        """The ranks have changed."""

    def _terms(self):
        """Lines name=value that a rank which joins must have, too."""
        return [f"state={type(self).__name__}"]

    def _grow(self):
        """If ranks are ready, they join here. Returns the updates."""
        if not self._knows_joiners:
            return 0
        self._knows_joiners = False
        with Growing(_default.session().world) as growing:  # functions of horo.on_change() find the new state
            _default.session().grow()
            return self._meet(seen=growing.before.members)

    def _meet(self, before=None, seen=None):
        """After a growth, also on the ranks that have joined: which ranks there are, and how many commits the state
        has. before: the Topology before this rank has joined. seen: of a survivor, the members that functions of
        horo.on_change() know. Returns the updates."""
        session, has_state = _default.session(), before is None
        mine = [has_state, _growth.growths_of(session), self._commits, seen]
        with Growing(session.world, joins=not has_state) as growing:
            rows = [from_json(row) for row in gathers.gather(session, "members of elastic.State", to_json(mine))]
            survivors = sum(one for one, *_ in rows)
            removed, added = has_state and survivors < (self._size or 0), survivors < len(rows)
            if added:
                _growth.count_growth(session, 1 + max(growths for _, growths, *_ in rows))
            if not has_state and survivors:
                growing.before = Ranks(before.rank, before.epoch, next(tuple(last) for one, *_, last in rows if one))
            self._size, self._restored_size = len(rows), math.inf
            self._commits = max(commits for one, _, commits, _ in rows if one or not survivors)
        return REMOVED * removed | ADDED * added

    def _ask(self, call):
        """The updates that all ranks have agreed on. Raises GoBack if another rank needs the last commit, and Mismatch
        if ranks are at different calls."""
        mine = (call, self._commits + (call == COMMIT))
        agreed = self._agree(mine)
        if agreed.goes_back:
            self._restored_epoch = _default.session().topology.epoch
            raise GoBack("another rank has lost a call with a rank that is gone: all go back to the last commit")
        if not agreed.is_same:
            raise Mismatch(_differences(allgather_object(mine, name="elastic.State.calls")))
        self._knows_joiners = agreed.knows_joiners
        return agreed.updates

    def goes_back(self, error):
        """This rank has raised this PeerLost: whether all ranks go back to the last commit. A loss that all of them
        have gone back for already would come again and again."""
        if isinstance(error, GoBack):
            return True
        topology = _default.session().topology
        if topology.min_size == 0 or topology.epoch <= self._restored_epoch:
            return False
        self._restored_epoch = topology.epoch
        return self._agree(None).goes_back

    def _agree(self, call):
        """Exchanges the call that each rank is at, with its number of commits; None: it has an exception of a loss. The
        numbers of n ranks are equal if n times the sum of their squares is the square of their sum."""
        is_lost = call is None
        number = 0 if is_lost else call[0] + len(CALLS) * (call[1] % COMMITS)
        knows = bool(_default.session().joiners())
        mine = [1, self._told & REMOVED, self._told & ADDED, is_lost, number, number**2, knows]
        sums = torch.tensor(mine, dtype=torch.int64, device="cpu")
        ops.allreduce_(sums, op=Sum, name="elastic.State")
        size, removed, added, lost, total, squares, knows = sums.tolist()
        is_elastic = _default.session().topology.min_size > 0  # else a rank that is missing has joined
        removed = removed > 0 or (is_elastic and size < (self._size or 0))
        goes_back = lost > 0 and size < self._restored_size
        if goes_back:
            self._restored_size = size
        self._size, self._told = size, 0
        updates = REMOVED * removed | ADDED * (added > 0)
        return Agreed(updates, goes_back, (size - lost) * squares == total**2, knows > 0)


def _interrupt(updates):
    if updates:
        raise HostsUpdatedInterrupt(skip_sync=updates == REMOVED)


def _differences(calls):
    """The error text for ranks at different calls; calls: by rank."""
    ranks = {}
    for rank, (call, commits) in enumerate(calls):
        ranks.setdefault(TEXTS[call].format(commits), []).append(str(rank))
    rows = [f"rank{'s' * (len(who) > 1)} {', '.join(who)} at {text}" for text, who in ranks.items()]
    return f"elastic state: ranks are at different calls: {'; '.join(rows)}. Make the same calls on all ranks"


class ObjectState(State):
    """A state whose attributes are the keyword arguments: objects that can be copied and pickled."""

    def __init__(self, bcast_object, get_rank, **kwargs):
        """bcast_object(obj): rank 0's object, on every rank. get_rank(): this rank."""
        super().__init__(bcast_object, get_rank)
        self._saved_state = kwargs
        self._set(kwargs)

    def save(self):
        self._saved_state = {name: _copied(name, getattr(self, name)) for name in self._saved_state}

    def restore(self):
        self._set({name: _copied(name, value) for name, value in self._saved_state.items()})

    def sync(self):
        if not self._saved_state:
            return
        mine = {name: getattr(self, name) for name in self._saved_state}
        for name, value in mine.items():  # on all ranks, so that all of them raise the error
            attempt("pickled", pickle.dumps, name, value)
        self._set(self._bcast_object(mine))

    def _set(self, values):
        for name, value in values.items():
            setattr(self, name, value)


def _copied(name, value):
    return attempt("copied", copy.deepcopy, name, value)


def attempt(what, function, name, value):
    try:
        return function(value)
    except Exception as error:
        raise TypeError(
            f"elastic state: the attribute {name!r}, a {type(value).__name__}, cannot be {what}: {error}. Give the "
            "state values that can, and keep the others outside of it"
        ) from error
