"""Process sets: subsets of the world that run separate collectives. Their ids are valid for one session."""

import collections
import weakref

from horo import _communicators, _default
from horo._arguments import flag, rank_number
from horo._changes import held
from horo.errors import PeerLost, not_yet

_communicators_added = weakref.WeakKeyDictionary()  # Session: how many sets of communicators it has got, by text


class ProcessSet:
    """A subset of the ranks. Usable after all ranks of the world have added it, with init(process_sets=[...]) or
    add_process_set()."""

    mpi_comm = None  # the communicator, of a set that was made from one

    def __init__(self, ranks_or_comm, *, shrinks=False):
        """ranks_or_comm: ranks in the world, in any order; or a communicator of mpi4py, of which this process is a
        member: its members alone add the set, each with its communicator, and its ranks are known from then on.

        shrinks: in an elastic job the set goes on with the members that are left, as the world does. Without it, a set
        that has lost a member raises PeerLost on each use. The same on all ranks; no effect in a static job."""
        if _communicators.is_communicator(ranks_or_comm):
            self.mpi_comm, self._ranks = ranks_or_comm, None
        else:
            self._ranks = _ranks_in(ranks_or_comm)
        self._shrinks = flag(shrinks, "shrinks")
        self._session = None  # the session in which it was added
        self._id = None
        self._members = ()  # the members' ranks at the start of the job, while it is in a session

    @property
    def ranks(self):
        """The members' ranks in the world, ascending. In an elastic job those of the members that are left. None: of a
        communicator, before the set is added."""
        return None if self._ranks is None else list(self._ranks)

    @property
    def shrinks(self):
        """Whether it goes on with the members that are left when an elastic job has lost some of them."""
        return self._shrinks

    @property
    def process_set_id(self):
        """Its number, the same on all ranks; None before it is added and after it is removed."""
        return self._id if self._session is not None and self._session is _default.current() else None

    def size(self):
        """The number of members; None while it has no id."""
        return None if self.process_set_id is None else len(self._ranks)

    def rank(self):
        """This rank's number in the set, -1 if it is not a member; None while the set has no id."""
        if self.process_set_id is None:
            return None
        mine = _default.rank()
        return self._ranks.index(mine) if mine in self._ranks else -1

    def included(self):
        """Whether this rank is a member, before the set is added as well."""
        return self._ranks is None or _default.rank() in self._ranks

    def number(self):
        """process_set_id. Raises ValueError if there is none, PeerLost if it has lost a member and cannot go on."""
        number = self.process_set_id
        if number is None:
            _default.session()
            raise ValueError(
                f"{self!r} is not a process set of this session: every rank has to add it first, with "
                "add_process_set() or init(process_sets=[...])"
            )
        if len(self._ranks) < (1 if self.shrinks else len(self._members)):
            self._session.check_set(number)
        return number

    def attach(self, session, number, members):
        """It was added to a session. members: their ranks at the start of the job."""
        self._session, self._id, self._members = session, number, members
        session.world.sets[number] = self
        self.renumber(session.world.members)

    def detach(self):
        """It was removed from its session."""
        self._session.world.sets.pop(self._id, None)
        self._session, self._id, self._members = None, None, ()

    def renumber(self, members):
        """The world has changed. members: the ranks at the start of the job, by present rank."""
        self._ranks = [rank for rank, member in enumerate(members) if member in self._members]

    def members(self):
        """The number of members. Raises ValueError if the set is not one of this session."""
        self.number()
        return len(self._ranks)

    def place_of(self, rank, what):
        """The number in the set of a rank of the world."""
        self.number()
        rank = rank_number(rank, what)
        if rank not in self._ranks:
            raise ValueError(f"{what}={rank!r} is not in {self!r}; expected one of its ranks, as numbers in the world")
        return self._ranks.index(rank)

    def rank_at(self, place):
        """The rank in the world of a member."""
        return self._ranks[place]

    def __copy__(self):
        return self

    def __deepcopy__(self, _):
        return self  # a copy of a module or an optimizer uses the same set

    def __reduce__(self):
        return _set_of, (self._ranks, self._shrinks)

    def __eq__(self, other):
        if other is self or not isinstance(other, ProcessSet) or other is global_process_set:
            return other is self
        return self._ranks is not None and self._ranks == other._ranks

    def __hash__(self):
        return hash(ProcessSet)  # ranks may change

    def __repr__(self):
        return f"ProcessSet({self.mpi_comm if self._ranks is None else self._ranks})"


def _ranks_in(ranks):
    """The argument of ProcessSet as a list in ascending order."""
    if not hasattr(ranks, "__iter__"):
        raise not_yet(f"ProcessSet({ranks!r}); expected ranks, such as ProcessSet([0, 1])")
    found = sorted(rank_number(rank, "ProcessSet: rank", "ranks, such as [0, 1]") for rank in ranks)
    if not found:
        raise ValueError("ProcessSet([]): expected at least one rank")
    if len(set(found)) != len(found):
        raise ValueError(f"ProcessSet({found}): expected each rank once")
    return found


def _set_of(ranks, shrinks):
    """A set that was pickled. It is in no session."""
    return ProcessSet(ranks, shrinks=shrinks)


class _World(ProcessSet):
    """All ranks."""

    def __init__(self):
        pass  # the ranks are those of the current session

    process_set_id = 0
    shrinks = True

    @property
    def ranks(self):
        return list(range(self.size()))

    def size(self):
        return _default.size()

    def rank(self):
        return _default.rank()

    def included(self):
        return _default.is_initialized()

    def number(self):
        return 0

    def members(self):
        return _default.session().topology.size

    def place_of(self, rank, what):
        rank = rank_number(rank, what)
        if not 0 <= rank < self.members():
            raise ValueError(f"{what}={rank!r} is not a rank of this world of {self.members()}")
        return rank

    def rank_at(self, place):
        return place

    def __reduce__(self):
        return "global_process_set"

    def __eq__(self, other):
        return other is self

    def __hash__(self):
        return 0

    def __repr__(self):
        return "global_process_set"


global_process_set = _World()


def check(process_set):
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set={process_set!r}; expected a ProcessSet, such as global_process_set")


def number_of(process_set):
    """The number of a process set. Raises ValueError if it has none in this session."""
    check(process_set)
    return process_set.number()


def as_set(process_set):
    """process_set, a ProcessSet or ranks, as a ProcessSet."""
    return process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)


def init(comm=None, process_sets=None, *, settings=None):
    """Joins the job that the HORO_* variables describe, or those of torchrun, mpirun or srun. Without any of them this
    process is a world of one rank.

    process_sets: the initial ProcessSets, the same on all ranks; others can be added later. settings: a mapping such as
    {"HORO_BUCKET_BYTES": 0} that takes precedence over the environment. comm: for scripts of Horovod, all ranks of the
    job, as a list or as a communicator of mpi4py. A second init without a shutdown in between does nothing. Blocks
    until all ranks have connected, at most HORO_START_TIMEOUT_MS.
    """
    init_with(None, comm, process_sets, settings)


def init_with(exchange, comm, process_sets, settings):
    """init() with an exchange (see Session) or None."""
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise ValueError(f'init(process_sets={process_sets!r}); expected a list of ProcessSets, or "dynamic"')
    wanted = [] if process_sets is None or process_sets == "dynamic" else [as_set(each) for each in process_sets]
    _communicators.check_size(comm, settings)

    def prepare():
        _communicators.check_world(comm)
        for each in wanted:
            add_process_set(each)

    _default.begin(exchange, settings, prepare)


def add_process_set(process_set, *, shrinks=None, name=None):
    """Adds a process set to the session, and returns it. process_set: a ProcessSet or its ranks. shrinks: see
    ProcessSet; None: as the ProcessSet says.

    All ranks of the world, members or not, make the same call. Blocks until all of them have made it. The members of a
    set that was made from a communicator make it alone. With a name, too, the members make it alone: they find one
    another by the name, which no other such set has while this one exists; another set may have the same ranks."""
    added = as_set(process_set)
    if added is global_process_set or added.process_set_id is not None:
        raise ValueError(f"{added!r} is already a process set of this session")
    shrinks = added.shrinks if shrinks is None else flag(shrinks, "shrinks")
    session = _default.session()
    if added.mpi_comm is not None:
        added._ranks = _communicators.ranks_of(added.mpi_comm)
    if name is not None:
        _check_name(name, added)
    ids = session.world.members
    members = tuple(ids[rank] for rank in added._ranks if rank < len(ids))
    with held:
        number = session.add_set(added._ranks, shrinks, _name_of(session, added) if name is None else f"set {name}")
        added._shrinks = shrinks
        added.attach(session, number, members)
    return added


def _check_name(name, added):
    if not isinstance(name, str) or not name:
        raise ValueError(f"add_process_set(name={name!r}); expected a text, the same on all members")
    if added.mpi_comm is not None:
        raise ValueError(f"add_process_set(name={name!r}): a set of a communicator has a name already; leave it out")
    if _default.rank() not in added._ranks:
        raise ValueError(
            f"add_process_set(name={name!r}): rank {_default.rank()} is not one of the ranks {added._ranks}; expected "
            "the call on these alone"
        )


def _name_of(session, added):
    """By which the members of a set that was made from a communicator find each other; None: of another set."""
    if added.mpi_comm is None:
        return None
    text = f"communicator of ranks {', '.join(map(str, added._ranks))}"
    counts = _communicators_added.setdefault(session, collections.Counter())
    counts[text] += 1
    return f"{text}, number {counts[text]}"


def remove_process_set(process_set):
    """Removes a process set; returns whether it was one of this session.

    All ranks that had to add it make the same call. Blocks until all of them have made it. A set that has lost a
    member, and cannot go on, is gone on all ranks already: the call removes it here, and waits for no rank."""
    check(process_set)
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    session, number = _default.session(), process_set.process_set_id
    with held:
        try:
            session.remove_set(number)
        except PeerLost:
            if not session.has_lost_set(number):
                raise
        process_set.detach()
    return True


def process_sets():
    """All process sets of the session, by id; the world is the first one."""
    sets = _default.session().world.sets
    return [global_process_set, *(sets[number] for number in sorted(sets))]


def process_set_by_id(process_set_id):
    """The process set of the session with this id. Raises ValueError if there is none."""
    for each in process_sets():
        if each.process_set_id == process_set_id:
            return each
    raise ValueError(f"no process set of this session has the id {process_set_id!r}")
