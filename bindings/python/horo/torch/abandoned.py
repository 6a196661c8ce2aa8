"""Works of rounds that were given up: the memory of the gradients is theirs until they end."""

from horo.errors import HoroError


class AbandonedWorks:
    """The works of one optimizer that no caller waits for. Their names are in flight until they end."""

    def __init__(self):
        self._works = []  # Session, its works

    def __bool__(self):
        return bool(self._works)

    def add(self, table):
        """The session keeps the memory of this GradientTable until its works have ended."""
        if len(table):
            self._works.append((table.session, table.abandon()))

    def settle(self):
        """Waits until all have ended, with a result or an error."""
        while self._works:
            session, works = self._works[-1]
            for work in works if not session.closed else ():
                try:
                    session.wait([work])
                except (HoroError, ValueError):  # released already: an interrupt came after the next two lines
                    pass
            self._works.pop()
            session.drop(works)

    def drop(self):
        """The session releases them when they have ended."""
        for session, works in self._works:
            session.drop(works)
