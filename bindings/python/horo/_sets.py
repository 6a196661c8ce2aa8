"""Process sets: subsets of the world that run collectives of their own. Their ids are good for one session."""

from horo import _default
from horo.errors import not_yet


class ProcessSet:
    """Some of the ranks. It can be used once all ranks of the world have added it: init(process_sets=[...]), or
    add_process_set()."""

    def __init__(self, ranks_or_comm):
        """ranks_or_comm: numbers in the world, in any order."""
        if not hasattr(ranks_or_comm, "__iter__"):
            raise not_yet(f"ProcessSet({ranks_or_comm!r}); expected ranks, such as ProcessSet([0, 1])")
        self._ranks = sorted(int(rank) for rank in ranks_or_comm)
        if not self._ranks:
            raise ValueError("ProcessSet([]): expected at least one rank")
        if len(set(self._ranks)) != len(self._ranks):
            raise ValueError(f"ProcessSet({self._ranks}): expected each rank once")
        self._session = None  # that knows it
        self._id = None

    @property
    def ranks(self):
        """Numbers in the world, ascending."""
        return list(self._ranks)

    @property
    def process_set_id(self):
        """Its number, the same on all ranks; None before it was added and after it was removed."""
        return self._id if self._session is not None and self._session is _default.current() else None

    def size(self):
        """How many ranks it has; None while it has no id."""
        return None if self.process_set_id is None else len(self._ranks)

    def rank(self):
        """My number inside it, -1 where I am not; None while it has no id."""
        if self.process_set_id is None:
            return None
        mine = _default.rank()
        return self._ranks.index(mine) if mine in self._ranks else -1

    def included(self):
        """Whether I am in it; None while it has no id."""
        return None if self.process_set_id is None else _default.rank() in self._ranks

    def number(self):
        """process_set_id, for a call; ValueError where it has none."""
        number = self.process_set_id
        if number is None:
            _default.session()
            raise ValueError(
                f"{self!r} is not a process set of this session: every rank has to add it first, by "
                "add_process_set() or init(process_sets=[...])"
            )
        return number

    def members(self):
        """How many members a call counts on; ValueError where there is no such set."""
        self.number()
        return len(self._ranks)

    def place_of(self, rank, what):
        """The number inside the set of a rank of the world."""
        self.number()
        if rank not in self._ranks:
            raise ValueError(f"{what}={rank!r} is not in {self!r}; expected one of its ranks, as numbers in the world")
        return self._ranks.index(rank)

    def rank_at(self, place):
        """The number in the world of a member."""
        return self._ranks[place]

    def __eq__(self, other):
        return isinstance(other, ProcessSet) and other is not global_process_set and self._ranks == other._ranks

    def __hash__(self):
        return hash(tuple(self._ranks))

    def __repr__(self):
        return f"ProcessSet({self._ranks})"


class _World(ProcessSet):
    """All ranks."""

    def __init__(self):
        pass  # it needs no ranks: it asks the session

    process_set_id = 0

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
        if not 0 <= rank < self.members():
            raise ValueError(f"{what}={rank!r} is not a rank of this world of {self.members()}")
        return rank

    def rank_at(self, place):
        return place

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
    """Its number, for a call; ValueError where it has none in this session."""
    check(process_set)
    return process_set.number()


def as_set(process_set):
    """A ProcessSet of what was given: one, or ranks."""
    return process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)


def init(comm=None, process_sets=None, *, settings=None):
    """Joins the job that the HORO_* variables describe, or torchrun, mpirun or srun; else this process is a world of
    its own.

    process_sets: ProcessSets to begin with, the same on all ranks; more can be added later. settings: a mapping such as
    {"HORO_BUCKET_BYTES": 0} that takes precedence over the environment. A second init without a shutdown in between
    does nothing. Blocks until all ranks are there, up to HORO_START_TIMEOUT_MS.
    """
    init_with(None, comm, process_sets, settings)


def init_with(exchange, comm, process_sets, settings):
    """init() with an exchange (see Session) for ranks that need one."""
    if comm is not None:
        raise not_yet("init(comm=...); the world is what HORO_RANK, HORO_SIZE and HORO_ADDR say")
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise ValueError(f'init(process_sets={process_sets!r}); expected a list of ProcessSets, or "dynamic"')
    wanted = [] if process_sets is None or process_sets == "dynamic" else [as_set(each) for each in process_sets]
    _default.begin(exchange, settings, lambda: [add_process_set(each) for each in wanted])


def add_process_set(process_set):
    """Makes a process set usable, and returns it. All ranks of the world call it alike, members or not; blocks until
    they have. process_set: a ProcessSet or its ranks."""
    added = as_set(process_set)
    if added is global_process_set or added.process_set_id is not None:
        raise ValueError(f"{added!r} is a process set of this session already")
    session = _default.session()
    added._id = session.add_set(added._ranks)
    added._session = session
    return added


def remove_process_set(process_set):
    """Ends a process set; whether there was one to end. All ranks of the world call it alike; blocks until they have."""
    check(process_set)
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    _default.session().remove_set(process_set.number())
    process_set._id = process_set._session = None
    return True
