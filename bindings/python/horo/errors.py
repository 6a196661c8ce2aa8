"""Exceptions of horo's calls, besides ValueError (bad argument, nothing was queued) and NotImplementedError."""


class HoroError(RuntimeError):
    """A failure after the call was accepted."""


class Mismatch(HoroError):
    """Ranks disagree about a tensor: the call fails on every rank, with each rank's value. The session continues."""


class PeerLost(HoroError):
    """A rank has exited, missed a deadline or aborted. `origin` is its number, -1 if it is not known."""

    def __init__(self, text, origin=-1):
        super().__init__(text)
        self.origin = origin


class ShutDown(HoroError):
    """The session was shut down before this work ended, or before this call."""


def not_yet(what):
    """The error for an argument that is in the API but not implemented in this version."""
    return NotImplementedError(f"not yet: {what}")
