"""Process sets: in this version there is one, the world."""

from horo import _default
from horo.errors import not_yet


class SetInfo:
    """A named subset of the ranks."""

    process_set_id = None

    def __init__(self, ranks_or_comm):
        raise not_yet(f"SetInfo({ranks_or_comm!r}); the only process set is global_process_set")


class _World(SetInfo):
    """All ranks."""

    process_set_id = 0

    def __init__(self):
        pass  # it needs no ranks: it asks the session

    @property
    def ranks(self):
        return list(range(self.size()))

    def size(self):
        return _default.size()

    def rank(self):
        return _default.rank()

    def included(self):
        return _default.is_initialized()

    def __repr__(self):
        return "global_process_set"


global_process_set = _World()


def check(process_set):
    if process_set is not global_process_set:
        raise not_yet(f"process_set={process_set!r}; the only process set is global_process_set")
