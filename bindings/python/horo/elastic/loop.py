"""run: calls a function of a State, on ranks that were there from the start and on those that join later."""

import contextlib
import functools
import hashlib
import itertools
import sys

from horo import _default
from horo.elastic.border import Border
from horo.elastic.start import make_equal
from horo.elastic.state import State
from horo.errors import HoroError, PeerLost

TERMS_BYTES = 1 << 19  # half of what a message of a member may have: the session adds its settings

FIRST_CALL = 1
_calls = itertools.count(FIRST_CALL)  # of functions of elastic.run in this process


def run(func):
    """A decorator of func(state, ...). All ranks call func with a State.

    With a horo.elastic.State func is called once on each rank, with the fields of rank 0; ranks that join call it when
    they have the state, and its loops begin in the middle. With a State of Horovod (TorchState, ObjectState) see
    horo.torch.elastic.run. Exceptions are raised as they are."""

    @functools.wraps(func)
    def wrapper(state=None, *args, **kwargs):
        if isinstance(state, State):
            return train(functools.partial(func, state, *args, **kwargs), state)
        from horo.torch.elastic.loop import run_horovods

        return run_horovods(func, lambda: None, state, args, kwargs)

    return wrapper


def train(function, state):
    """Calls function() with the state in the job of this process, which it joins first if it was started for that, and
    again if it was evicted."""
    call = next_call()
    terms = text_of(state.terms(), call, state.most_ranks())
    if state._border is not None:  # in another function, whose borders these are
        offer(_default.session(), call, terms)
        return function()

    def attempt(before):
        session = _default.session()
        if session.is_elastic:
            state.check_can_be_given()
        border = Border(session, state._gradients)
        if before is not None:
            state._join(border, before)
        else:
            state._begin(border)
            if not state._resume(border):
                make_equal(state, border)
        offer(session, call, terms)
        border.open()
        try:
            result = function()
            state._finish()
            return result
        finally:
            border.close()
            state._end()
            take_back(session)

    return in_job(attempt, terms, state._give_up)


def in_job(attempt, terms, give_up):
    """attempt(before) in the job of this process, which it joins first if it was started for that. If the rank is
    evicted, because it stood still, it joins again and begins anew. before: the Topology before this rank has joined;
    None: it has not. give_up(): what the attempt has begun is void."""
    before = None
    if _default.session().is_joiner:
        before = _default.session().topology
        _default.join(terms)
    while True:
        try:
            return attempt(before)
        except PeerLost:
            evicted = _default.current()
            variables = None if evicted is None else evicted.ask_to_rejoin()
            if variables is None:
                raise
        give_up()  # behind the handler: the frames of the attempt are gone, with what they keep
        if (rounds := sys.modules.get("horo.torch.rounds")) is not None:
            rounds.forget_all()
        before = evicted.topology
        _default.rejoin(variables, terms)


def text_of(terms, call, most_ranks=None):
    """The lines of terms() in at most TERMS_BYTES: of a State with very many tensors, a hash of them. Then a difference
    is named by the transfer, which compares them again. call: the number of the call of a function of elastic.run in
    this process. A rank that joins is in its first one, so the others must be, too."""
    head, text = f"state.run={call}\n", "\n".join(terms)
    if len(text.encode()) > TERMS_BYTES:
        text = f"state=sha256 {hashlib.sha256(text.encode()).hexdigest()} of {len(terms)} lines"
    # The last line: Joiners::most_with() reads it, and the first difference is to be one that a user knows.
    return head + text + ("" if most_ranks is None else f"\nmost_ranks={most_ranks}")


def next_call():
    """The last argument of text_of(). Each call of a function of elastic.run calls it once."""
    return next(_calls)


def offer(session, call, terms):
    """The call of this number begins. Ranks may join in the first one alone, also where it calls others: a rank that is
    started now begins with the first one."""
    if call != FIRST_CALL:
        take_back(session)
    elif session.is_elastic:
        session.can_grow(terms)


def take_back(session):
    """The function of elastic.run has ended on this rank: no rank can join any more. The session may have ended."""
    if session.is_elastic and not session.closed:
        with contextlib.suppress(HoroError):
            session.cannot_grow()
