"""Exceptions of horo's calls, besides ValueError (bad argument, nothing was queued) and NotImplementedError."""


class HoroError(RuntimeError):
    """A failure after the call was accepted."""


class Mismatch(HoroError):
    """Ranks disagree about a tensor: the call fails on every rank, with each rank's value. The session continues."""


class PeerLost(HoroError):
    """A rank has exited, missed a deadline or aborted. `origin` is its number, -1 if it is not known. In an elastic job
    the session goes on, and the script sees the present ranks (docs/elastic.md)."""

    def __init__(self, text, origin=-1):
        super().__init__(text)
        self.origin = origin


class ShutDown(HoroError):
    """The session was shut down before this work ended, or before this call."""


class HostsUpdatedInterrupt(RuntimeError):
    """Raised on all ranks by commit() and check_host_updates() of an elastic State when ranks were lost, and caught by
    elastic.run. skip_sync: all ranks that are left have the same state."""

    def __init__(self, skip_sync=False):
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


class Drained(SystemExit):
    """Raised by the step() of a DistributedOptimizer, or of an optimizer over torch.distributed, after its update, if
    this rank has got a notice (horo.notice()). It ends the script in good order, with exit code 0, as sys.exit() does.
    An elastic job goes on without this rank; the ranks of a static job leave after the same step."""

    def __init__(self):
        super().__init__(0)


class ReplicasDiffer(HoroError):
    """The audit has found that ranks differ in what they hold equal (docs/audit.md). `label`: the first parameter,
    state entry or option that differs. `ranks`: those that differ from most others. `between`: the last step after
    which everything was equal, or None, and the first one after which it was not."""

    def __init__(self, text, label, ranks, between):
        super().__init__(text)
        self.label, self.ranks, self.between = label, ranks, between


def not_yet(what):
    """The error for an argument that is in the API but not implemented in this version."""
    return NotImplementedError(f"not yet: {what}")
