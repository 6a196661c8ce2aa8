"""Rounds: a backward returns when the gradients that it reached are reduced.

A round is what one outermost backward reduces. The hooks of hooks.py submit gradients while backward runs. A wrapper
around torch.autograd.backward submits the rest at the end of the outermost call, for all optimizers that it reached,
and waits for all results. A backward that bypasses the wrapper ends its round in a callback of autograd; if
autograd does not call that either, step() ends the round.
"""

import contextlib
import functools
import hashlib
import itertools
import weakref

import torch

from horo import _native
from horo._changes import held
from horo._specs import Spec
from horo.errors import Mismatch
from horo.torch import disagreement, marks, streams
from horo.torch.streams import MAX_STREAMS, own_thread, this_thread

CHECK_BYTES = 4  # of the digest of the streams' numbers

_living = weakref.WeakSet()  # Gradients
_numbers = itertools.count()
_active = set()  # the BackwardPasses of all threads in the wrapper


class BackwardPass:
    """One outermost backward. The threads of autograd that work for it find it: see streams.carried."""

    __slots__ = ("has_nested", "is_active", "task", "thread")

    def __init__(self, task=None):
        self.has_nested = False  # it has called backward itself, as reentrant checkpoints do
        self.is_active = True
        self.task = task  # graph task of a backward that bypasses the wrapper
        self.thread = own_thread()

    def is_alone(self):
        """Whether no other thread runs backward."""
        return not _active - {self}


def serve(gradients):
    """From now on, backward ends the rounds of these Gradients."""
    marks.install_for_optimizers()
    if gradients not in _living:
        gradients.serial = next(_numbers)
        _living.add(gradients)
    wrap_backward()


def wrap_backward():
    """From now on the outermost calls of backward are seen."""
    if not getattr(torch.autograd.backward, "is_horos", False):
        torch.autograd.backward = _wrapped(torch.autograd.backward)


def leave(gradients):
    """The optimizer of these Gradients is gone."""
    _living.discard(gradients)


def living():
    """The Gradients of all optimizers, in the order in which they were wrapped."""
    return sorted(list(_living), key=lambda gradients: gradients.serial)


def forget_all():
    """This rank is no member of the job any more: rounds of optimizers, and the exchange of this thread, are void."""
    thread = this_thread()
    thread.unfinished = thread.backward = None
    for gradients in living():
        gradients.forget_round()


def current():
    """The BackwardPass to which the calling hook belongs. If backward bypasses the wrapper, autograd calls end() at the
    end of the current graph task."""
    found = streams.carried()
    if found is not None:
        if not found.is_active:  # an exception has ended it in another thread
            raise RuntimeError("a gradient is complete after its backward has raised an exception")
        return found
    thread = own_thread()
    found = thread.backward
    if found is not None:
        if found.task in (None, torch._C._current_graph_task_id()):
            return found
        found.is_active = False  # an exception has ended it
    found = _only_one()
    if found is None:
        found = thread.backward = BackwardPass(torch._C._current_graph_task_id())
        if found.task != -1:  # else the hook was called by hand
            torch.autograd.Variable._execution_engine.queue_callback(lambda: _end_late(found))
    return found


def _only_one():
    """Where torch does not carry the BackwardPass to autograd's own threads: the only one of all threads, or None."""
    active = [] if streams.CARRIES else list(_active)
    return active[0] if len(active) == 1 else None


def _wrapped(backward):
    @functools.wraps(backward)
    def outermost(*args, **kwargs):
        if torch._C._current_graph_task_id() != -1:
            found = streams.carried() or own_thread().backward or _only_one()
            if found is not None:
                found.has_nested = True
            return backward(*args, **kwargs)
        if not _living:
            return marks.backward_of_groups(backward, args, kwargs)
        marks.begin_backward()
        try:
            return _run(backward, args, kwargs)
        finally:
            marks.end_backward()

    outermost.is_horos = True
    outermost._torchdynamo_disable = True
    return outermost


def _run(backward, args, kwargs):
    """An outermost backward."""
    with held, telling(()):
        resume()
        for gradients in living():
            gradients.prepare()
    running, before = BackwardPass(), streams.carried()
    try:
        _start(running)
        result = backward(*args, **kwargs)
    except BaseException as error:
        _give_up(running, error)
        raise
    finally:
        _stop(running, before)
    end(running)
    return result


def _start(running):
    """The hooks that run from now on belong to this BackwardPass."""
    running.thread.backward = running
    _active.add(running)
    streams.carry(running)


def _stop(running, before):
    """The hooks of this BackwardPass have run. before: what streams.carried() was before it."""
    running.is_active = False
    _active.discard(running)
    running.thread.backward = None
    streams.carry(before if before is not None and before.is_active else None)


def _end_late(running):
    running.is_active = False
    running.thread.backward = None
    end(running)


def _reached(running):
    return [gradients for gradients in living() if gradients.was_reached_by(running)]


def _give_up(running, error):
    running.is_active = False  # other threads of autograd may still run hooks
    incomplete = [one for one in _reached(running) if not one.round.accumulates]
    if disagreement.marked_set(error) is None and incomplete and this_thread().unfinished is None:
        this_thread().unfinished = _Exchange(incomplete)
    _abandon(incomplete, error)
    for gradients in _reached(running):
        gradients.forget_pass()


def end(running):
    """The backward has ended: ends the round of each optimizer that it reached, unless it only accumulates."""
    finish([gradients for gradients in _reached(running) if gradients.end_pass()])


def finish(complete):
    """Reduces the gradients of these Gradients; one call is one round of each. Blocks.

    Where a process set has several optimizers, the ranks first tell one another which of them have a round: a rank
    takes part in all rounds of the others, with the gradients that it has."""
    with held:  # functions of on_change() find the results in the gradients
        with telling(complete):
            _finish(complete)


@contextlib.contextmanager
def telling(complete):
    """A context in which rounds of these Gradients end: an error of ranks that reduce different parameters tells
    them."""
    try:
        yield
    except Exception as error:
        told = disagreement.explained(error, complete, living())
        if told is error:
            raise
        raise told from None


def _finish(complete):
    resume()
    this_thread().unfinished = exchange = _Exchange(complete)
    everything = list(complete)
    try:
        for gradients in complete:
            gradients.submit_rest()
        exchange.start()
        everything += _take_part(exchange)
        _submit_undecided(everything)
    except BaseException as error:
        _abandon([one for one in everything if not one.round.is_submitted], error)
        raise
    _end_rounds(everything)


def _submit_undecided(complete):
    """In two loops, because the ranks may have their optimizers in different orders."""
    for gradients in complete:
        gradients.start_layouts()
    for gradients in complete:
        gradients.submit_undecided()


def _abandon(incomplete, error):
    """An exception has ended the rounds of these Gradients. The other ranks get its text. All ranks of a set that
    disagree give up alike. The exchange of these rounds is the unfinished one of this thread, or has ended."""
    reason = f"{type(error).__name__}: {error}"
    marked = disagreement.marked_set(error)
    for gradients in incomplete:
        alone = gradients.declared.process_set != marked
        gradients.give_up(reason if alone else str(error), alone)
    exchange = this_thread().unfinished
    if incomplete and exchange is not None:
        exchange.reason = reason
        exchange.start()


def resume():
    """Completes the exchange of this thread's last round: takes part in rounds that only other ranks have begun."""
    exchange = this_thread().unfinished
    if exchange is None:
        return
    others = _take_part(exchange)
    try:
        _submit_undecided(others)
    except BaseException as error:
        _abandon([one for one in others if not one.round.is_submitted], error)
        raise
    _end_rounds(others)


def _take_part(exchange):
    """Waits for the exchange. Returns the Gradients that have a round on other ranks only: their gradients are
    submitted, or their rounds are given up like this rank's."""
    try:
        others = exchange.others()
        for gradients in others:
            if exchange.reason is not None:
                gradients.give_up(exchange.reason)
            elif not gradients.round.is_submitted:
                gradients.submit_rest()
    except Exception:
        this_thread().unfinished = None
        raise
    this_thread().unfinished = None
    return [] if exchange.reason is not None else others


def _end_rounds(complete):
    """In two loops, because the ranks may have their optimizers in different orders."""
    for gradients in complete:
        if not gradients.ends_in_step:
            gradients.commit()
    failure = None
    for gradients in complete:
        try:
            if not gradients.ends_in_step:
                gradients.collect()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
    ended = [gradients for gradients in complete if not gradients.ends_in_step]
    if ended:
        declared = ended[-1].declared
        marks.end_of_round(declared.session, declared.stream.number if declared.stream else 0)


class _Exchange:
    """The ranks tell one another which streams have a round, where a process set has several optimizers."""

    def __init__(self, complete):
        self.reason = None  # why this rank has given its rounds up
        self._complete = complete
        self._flights = []  # per process set: Session, work or None, Spec, flags, numbers of the streams, (set, Stream)
        self._wanted = set()  # numbers of the streams that have a round
        connections = [(one.declared.process_set, *one.connection()) for one in complete if not one.ends_in_step]
        mine = {stream.number for *_, stream in connections}
        done = set()
        for process_set, session, number, one in connections:
            numbers = one.companions()
            if len(numbers) > 1 and number not in done:
                done.add(number)
                flags = [stream in mine for stream in numbers] + [False] * (MAX_STREAMS - len(numbers))
                flags = torch.tensor([*flags, *_check_of(numbers)], dtype=torch.uint8, device="cpu")
                self._flights.append([session, None, _spec(number, numbers), flags, numbers, (process_set, one)])

    def start(self):
        """Submits what is not submitted yet."""
        for flight in self._flights:
            session, work, spec, flags, *_ = flight
            if work is None:
                flight[1] = session.submit(spec, flags.data_ptr(), flags.data_ptr(), flags)

    def others(self):
        """Waits. Returns the Gradients that have a round on other ranks only."""
        self._flights = [flight for flight in self._flights if not flight[0].closed]
        self.start()
        while self._flights:
            session, work, _, flags, numbers, of = self._flights[-1]
            try:
                session.wait([work])
            except Exception:
                session.drop([flight[1] for flight in self._flights])
                raise
            self._flights.pop()
            session.release([work])
            flags = flags.tolist()
            if flags[MAX_STREAMS:] != _check_of(numbers):
                raise self._different(session, numbers, of)
            self._wanted.update(stream for stream, flag in zip(numbers, flags) if flag)
        others = [one for one in living() if one not in self._complete and not one.declared.is_displaced()]
        return [one for one in others if one.declared.stream.number in self._wanted]

    def _different(self, session, numbers, of):
        """The error for ranks that have different optimizers. of: the process set, and a stream of it."""
        session.drop([flight[1] for flight in self._flights])
        error = Mismatch(
            f"rounds of optimizers: the ranks have wrapped different optimizers, or not equally often: rank "
            f"{session.topology.rank} has {len(numbers)}. Nothing was changed; wrap the same ones on all ranks"
        )
        disagreement.mark(error, *of)
        return error


def _check_of(numbers):
    """Bytes whose maximum over ranks is equal to those of each rank only if the numbers are: a digest and its
    complement."""
    digest = hashlib.sha256(",".join(map(str, numbers)).encode()).digest()[:CHECK_BYTES]
    return [*digest, *(255 - one for one in digest)]


def _spec(number, numbers):
    """The Spec of the flags of these streams in a process set."""
    name = "rounds of optimizers"
    if not this_thread().is_main:
        name += " " + hashlib.sha256(",".join(map(str, numbers)).encode()).hexdigest()[:8]
    fields = {"dtype": _native.UINT8, "shape": (MAX_STREAMS + 2 * CHECK_BYTES,), "stepwise": 1, "set": number}
    return Spec(name, _native.ALL_REDUCE, _native.MAX, **fields)
