"""run: calls a function of a State, on ranks that were there from the start and on those that join later."""

import functools
import hashlib

from horo import _default
from horo.elastic.border import Border
from horo.elastic.state import State
from horo.errors import PeerLost

TERMS_BYTES = 1 << 19  # half of what a message of a member may have: the session adds its settings


def run(func):
    """A decorator of func(state, ...). All ranks call func with a State.

    With a horo.elastic.State func is called once on each rank; ranks that join call it when they have the state, and
    its loops begin in the middle. With a State of Horovod (TorchState, ObjectState) see horo.torch.elastic.run.
    Exceptions are raised as they are."""

    @functools.wraps(func)
    def wrapper(state=None, *args, **kwargs):
        if isinstance(state, State):
            return train(functools.partial(func, state, *args, **kwargs), state)
        from horo.torch.elastic.loop import run_horovods

        return run_horovods(func, lambda: None, state, args, kwargs)

    return wrapper


def train(function, state):
    """Calls function() with the state in the job of this process, which it joins first if it was started for that."""
    while True:
        session = _default.session()
        try:
            return _train(function, state, session)
        except PeerLost as error:
            if not _comes_back(error, session):
                raise


def text_of(terms):
    """The lines of terms() in at most TERMS_BYTES: of a State with very many tensors, a hash of them. Then a difference
    is named by the transfer, which compares them again."""
    text = "\n".join(terms)
    if len(text.encode()) <= TERMS_BYTES:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"state=sha256 {digest} of {len(terms)} lines"


def _train(function, state, session):
    terms = text_of(state.terms())
    if session.is_joiner:
        session = _default.join(terms)
        border = Border(session, state._gradients)
        state._join(border)
    else:
        border = Border(session, state._gradients)
        state._begin(border)
    if border.is_elastic:
        session.can_grow(terms)
    border.open()
    try:
        return function()
    finally:
        border.close()
        state._border = None


def _comes_back(error, session):
    """Whether this rank was evicted and is a joiner again: its provisional session is the default one then."""
    current = _default.current()
    return current is not session and getattr(current, "is_joiner", False)
