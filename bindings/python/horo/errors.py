"""What horo's calls raise beside ValueError (a bad argument, nothing was queued) and NotImplementedError (not yet)."""


class HoroError(RuntimeError):
    """Something went wrong after the call was taken."""


class Mismatch(HoroError):
    """Ranks disagree about one tensor: that call fails on every rank, with who said what. The session goes on."""


class PeerLost(HoroError):
    """A rank is gone, silent past a deadline, or gave up. `origin` is its number, -1 where that is not known."""

    def __init__(self, text, origin=-1):
        super().__init__(text)
        self.origin = origin


class ShutDown(HoroError):
    """The session was shut down before this work ended, or before this call."""


def not_yet(what):
    """The error of an argument that has a place in the API and none in this version."""
    return NotImplementedError(f"not yet: {what}")
