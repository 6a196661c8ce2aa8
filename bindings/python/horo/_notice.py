"""The notice of a rank whose host is drained: docs/elastic.md."""

import typing

from horo._default import current, session
from horo.errors import Drained


class Notice(typing.NamedTuple):
    """The host of this rank is drained. grace_s: seconds until horo run ends the rank, at least 0."""

    grace_s: float


def notice():
    """A Notice once horo run of this host was sent SIGTERM, of a static job with --grace: the rank is to leave, by the
    end of its script or shutdown(), where it loses nothing. The ranks of a static job get it after the same step. None
    before."""
    grace_s = session().notice()
    return None if grace_s is None else Notice(grace_s)


def leave_if_drained():
    """Called at the end of a step: raises Drained if there is a notice, but where the rank leaves at the border."""
    now = current()
    if now is not None and not now.leaves_at_border and now.notice() is not None:
        raise Drained
