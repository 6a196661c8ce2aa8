"""run: calls a function again when ranks are lost or have joined."""

import contextlib
import functools
import os

from horo import _default, elastic
from horo.elastic.loop import in_job, next_call, offer, take_back, text_of
from horo.errors import HostsUpdatedInterrupt, PeerLost
from horo.torch.elastic.base import START, State

LIMIT = "HOROVOD_ELASTIC_RESET_LIMIT"


def run(func):
    """A decorator of func(state, ...), also of a horo.elastic.State. All ranks call func with a State, which they get
    from rank 0 first.

    After commit() or check_host_updates() has raised HostsUpdatedInterrupt, func is called again with the state as it
    is. After a PeerLost, all ranks first go back to the last commit. Before each such call the ranks run the reset
    callbacks. All other exceptions are raised as they are, and so is PeerLost in a static job."""
    return run_fn(func, lambda: None)


def run_fn(func, reset):
    """run with a function that is called after each change of ranks, before the reset callbacks."""

    @functools.wraps(func)
    def wrapper(state=None, *args, **kwargs):
        if isinstance(state, elastic.State):
            return elastic.loop.train(functools.partial(func, state, *args, **kwargs), state)
        return run_horovods(func, reset, state, args, kwargs)

    return wrapper


def run_horovods(func, reset, state, args, kwargs):
    """Calls func(state, ...) with a State of Horovod."""
    if not isinstance(state, State):
        raise TypeError(
            f"{getattr(func, '__name__', func)}(), a function of elastic.run, got {type(state).__name__} as its first "
            "argument; expected an elastic State, such as elastic.State(model=model, optimizer=optimizer)"
        )
    call = next_call()
    terms = text_of(state._terms(), call)

    def attempt(before):
        session = _default.session()
        offer(session, call, terms)
        try:
            return _run(functools.partial(func, state, *args, **kwargs), reset, state, before)
        finally:
            take_back(session)

    return in_job(attempt, terms, state.restore)


def _run(train, reset, state, before):
    """before: the Topology before this rank has joined. Then the other ranks are behind a HostsUpdatedInterrupt, and so
    is this one. None: it has not joined."""
    has_joined = before is not None
    limit, resets = _limit(), -1 if has_joined else 0
    state.save()
    has_changed = bool(state._meet(before) if has_joined else state._ask(START))
    is_synced = False
    while True:
        if has_changed:
            resets += 1
            if limit is not None and resets > limit:
                text = "Horovod was shutdown because number of resets during elastic job exceeded limit"
                raise RuntimeError(f"{text}: {limit} ({LIMIT})")
        try:
            if has_changed:
                reset()
                state.on_reset()
            is_synced = is_synced or _sync(state)
            if not is_synced:
                has_changed = True
                continue
            if has_joined:
                has_joined = False
                _default.session().synced("the state of rank 0 by State.sync()")
            return train()
        except HostsUpdatedInterrupt as interrupt:
            has_changed, is_synced = True, is_synced and interrupt.skip_sync  # reset callbacks may raise it, too
        except PeerLost as error:
            if not state.goes_back(error):
                raise
            state.restore()
            has_changed, is_synced = True, False


def _sync(state):
    """Gives all ranks the state of rank 0, and saves it. False if ranks were lost meanwhile, rank 0 perhaps between two
    parts of its state: all ranks have their own state again then."""
    with _unsaved(state):
        state.sync()
    if state._ask(START):
        state.restore()
        return False
    state.save()
    return True


@contextlib.contextmanager
def _unsaved(state):
    """save() has no effect: sync() of a user's State or handler may call it, as Horovod's do, when it has parts of the
    states of two ranks."""
    kept = [vars(one) for one in (state, *getattr(state, "_handlers", {}).values()) if "save" not in vars(one)]
    for names in kept:
        names["save"] = lambda: None
    try:
        yield
    finally:
        for names in kept:
            del names["save"]


def _limit():
    text = os.environ.get(LIMIT, "")
    if text and not (text.isascii() and text.isdigit()):
        raise ValueError(f'{LIMIT}="{text}": expected a whole number of at least 0')
    return int(text) if text else None
