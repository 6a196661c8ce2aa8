"""The audit: ranks compare what they hold equal, so that replicas that drift apart are found. See docs/audit.md.

A look waits for the other ranks for at most HORO_AUDIT_WAIT_MS in a step; if they are late, it continues at the end of
the next step. It is a collective, so all ranks begin it after the same step; steps are counted from the start of the
session, or from the last join of the process set. Where tensors are on devices it ends some steps later.
"""

import collections
import gc
import itertools
import logging
import sys
import time
import warnings
import weakref

from horo import _default
from horo._growth import growths_of
from horo.errors import HoroError, ReplicasDiffer
from horo.torch import devices
from horo.torch.audit_entries import Entries
from horo.torch.audit_look import Debt, Look, compare, raise_first
from horo.torch.audit_text import key_of, levels, text_of

_log = logging.getLogger("horo")
_made = itertools.count()
_living = weakref.WeakSet()  # the Audits of this process
_counts = weakref.WeakKeyDictionary()  # session: how many Audits it has had, by name and process set


class Audit:
    """The audit of one optimizer. A rank outside of the process set, or alone in it, compares nothing."""

    def __init__(self, optimizer, names, process_set, key=None, has_state=True):
        """names, has_state: see Entries. key: a number or text that is equal on all ranks and that no other living
        optimizer has; None: it is made of the optimizer's class and names."""
        self._optimizer = weakref.ref(optimizer)
        self._entries = Entries(names, has_state)
        self._set = process_set
        self._title = type(optimizer).__name__
        if key is None:
            key = key_of(optimizer, names, {audit.name for audit in list(_living)})
        self.name = f"horo.audit.{key}"
        self._place = next(_made)  # among those with this name and set
        self.in_step = False  # parameters may be half updated
        self._session = self._pending = None
        self._growths = 0
        self._has_failed = False
        self._debt = Debt()  # of the look in progress
        weakref.finalize(optimizer, self._debt.pay).atexit = False
        self._steps = 0  # of the optimizer's life
        self._begin(None)
        _living.add(self)

    def _begin(self, session):
        """Counts steps anew: in a new session, or after a join, ranks may have made different numbers of steps."""
        self._drop()
        self._first = self._steps
        is_new, self._session = session is not self._session, session
        self._number = None if session is None else self._set.process_set_id
        self._next = 1
        self._looked_at = (0, time.monotonic())  # step and time of the last look
        self._complete_at = None  # the last step after which all entries were compared
        self._since = {}  # key of an entry that differs: (see ReplicasDiffer.between)
        self._reported = None
        if session is None:
            return
        self._joins = session.joins[self._number]
        growths = growths_of(session) if self._number == 0 else 0
        if is_new or growths != self._growths:
            counts = _counts.setdefault(session, collections.Counter())
            counts[self.name, self._number, growths] += 1
            self._place_in_session = counts[self.name, self._number, growths]
            self._growths = growths
        # What an earlier optimizer of this name has left in flight is never taken for a look of this one.
        self._name = f"{self.name}.{self._place_in_session}.{self._joins}"
        self._mode = session.setting("HORO_AUDIT")
        self._every = int(session.setting("HORO_AUDIT_EVERY"))
        self._permille = int(session.setting("HORO_AUDIT_PERMILLE"))
        self._wait_s = int(session.setting("HORO_AUDIT_WAIT_MS")) / 1000

    def order(self):
        """Sorts living Audits alike on all ranks. Two sets may have optimizers with one name."""
        return self.name, self._set.process_set_id or 0, self._place

    def _is_audited(self, session):
        """Whether this rank compares anything in this session."""
        if session is None or self._set.process_set_id is None:
            return False
        if session is not self._session or self._number != self._set.process_set_id:
            self._begin(session)
        elif session.joins[self._number] != self._joins:
            self._begin(session)
        return self._set.size() > 1 and self._set.included()  # a set that has lost a member fails in the look

    def before_step(self):
        """The optimizer begins to update parameters."""
        self.in_step = True

    def after_step(self):
        """Called once for each step(), when its updates have ended. Makes a look if one is due, and raises
        ReplicasDiffer with HORO_AUDIT=raise."""
        session = _default.current()
        audited = self._is_audited(session)
        self.in_step = False
        self._steps += 1
        if not audited or self._mode == "off" or self._every == 0:
            return
        if self._pending is None and self._steps - self._first < self._next:
            return
        self._look_after_step()

    def _look_after_step(self):
        if devices.places.is_capturing():
            return
        until = time.monotonic() + self._wait_s
        try:
            if self._pending is None:
                self._pending = (self._begin_look("step", self._debt, self._warn_of), self._steps)
                self._next = self._following(1, self._steps)
            look, step = self._pending
            if not look.advance(until, in_step=True):
                return
        except HoroError as error:  # the next collective raises it if the session has ended
            self._drop()
            _log.debug("the audit's look after step %s has failed: %s", self._steps, error)
            return
        except Exception as error:  # an optimizer whose state cannot be read must train all the same
            self._drop()
            self._warn_of(error)
            return
        self._pending = None
        raise_first(self._conclude(look.result, step))

    def _warn_of(self, error):
        """The first time that this rank cannot look. It takes part in the looks all the same: others wait for it."""
        if not self._has_failed:
            self._has_failed = True
            text = f"the audit of {self._title} has compared nothing after step {self._steps}: {error!r}"
            warnings.warn(text, stacklevel=levels())

    def _conclude(self, result, step):
        """Finds the step of the next look. Returns the errors to raise, at most one."""
        if result.is_valid:
            self._next = self._unless_known(max(self._next, self._following(self._stretch(result), step)), result)
            return self._judge(result.finding, step)
        # A rank has left out looks while an earlier one was in progress. All ranks know the next common one.
        self._next = self._unless_known((result.steps // self._every + 1) * self._every, result)
        return []

    def _unless_known(self, step, result):
        """This step, or the first of its followers at which no rank has the look of this result in progress."""
        while step <= result.known_after > result.steps:
            step = 2 * step if 2 * step < self._every else (step // self._every + 1) * self._every
        return step

    def _drop(self):
        pending, self._pending = self._pending, None
        if pending is not None:
            pending[0].drop()

    def _begin_look(self, occasion, debt, failed):
        steps = self._steps - self._first
        exchanges = compare(self._take, lambda: self._steps - self._first, self._set, failed)
        return Look((self._session, self._number), f"{self._name}.{occasion}", steps, exchanges, debt)

    def _take(self):
        """See compare()."""
        begin, steps = time.monotonic(), self._steps - self._first
        snapshot = self._entries.take(self._optimizer())
        end = time.monotonic()
        times = (int(1e6 * (end - begin)), int(1e6 * (begin - self._looked_at[1]) / max(1, steps - self._looked_at[0])))
        self._looked_at = (steps, time.monotonic())
        return snapshot, times

    def _following(self, stretch, step):
        """The step of the look after that of a step: 2, 4, 8, ... below `every`, then its multiples."""
        steps = step - self._first
        if 2 * steps < self._every:
            return 2 * steps
        return (steps // self._every + stretch) * self._every

    def _stretch(self, result):
        """How many times `every` steps lie between two looks, so that they take at most the permitted part."""
        if self._permille == 0 or result.steps_us == 0:
            return 1
        steps = 1000 * result.cost_us / (self._permille * result.steps_us)
        return max(1, -int(-steps // self._every))

    def _judge(self, finding, step):
        """Warns of a difference that was found after a step. Returns the errors to raise instead."""
        error = self._error_of(finding, step)
        if error is None:
            self._reported = None
        elif self._mode == "raise":
            return [error]
        elif (error.label, error.ranks) != self._reported:
            self._reported = (error.label, error.ranks)
            if _default.rank() in (finding.participants[0], *error.ranks):
                warnings.warn(str(error), stacklevel=levels())
        return []

    def _error_of(self, finding, step):
        """The ReplicasDiffer for the finding of a look after this step; None if there is none."""
        before, self._since = self._since, {}
        if finding is None:
            self._complete_at = step
            return None
        if not finding.is_complete:
            self._since = {key: since for key, since in before.items() if key > finding.keys[-1]}
        self._since.update((key, before.get(key, (self._complete_at, step))) for key in finding.keys)
        if finding.is_complete:
            self._complete_at = step
        between = self._since[finding.keys[0]]
        return ReplicasDiffer(text_of(finding, self._title, between, step), finding.label, finding.ranks, between)

    def look(self):
        """Looks at once: all ranks of the process set call it, and it waits for them. Returns a list of errors."""
        if not self._is_audited(_default.session()):
            return []
        errors, failures = [], []
        if self._has_ended_late(time.monotonic() + self._wait_s):
            errors, self._pending = self._conclude(self._pending[0].result, self._pending[1]), None
        look = self._begin_look("now", Debt(), failures.append)
        try:
            look.advance(None)
        except BaseException:
            look.drop()
            raise
        if failures:
            return [*errors, *failures]
        if not look.result.is_valid:
            is_given_up = look.result.is_given_up
            reason = "a rank could not look at" if is_given_up else "ranks have made different numbers of steps of"
            return [*errors, HoroError(f"horo.audit: {reason} {self._title}")]
        error = self._error_of(look.result.finding, self._steps)
        return errors if error is None else [*errors, error]

    def _has_ended_late(self, until):
        """Whether a look was in progress that has waited for a device, and has ended now."""
        if self._pending is None or not self._pending[0].is_late:
            return False
        return self._pending[0].advance(until)

    def last_looks(self, session, until):
        """The looks at shutdown, each with its step: one in progress that has waited for a device is ended by this
        time, and another one begun. None while an update is in progress, or a look that waits for other ranks."""
        if not self._is_audited(session) or self._mode == "off" or self._steps == self._first:
            return []
        if self.in_step or self._optimizer() is None:
            return []
        late = [self._pending] if self._has_ended_late(until) else []
        if self._pending is not None and not late:
            return []
        self._pending = None
        return [*late, (self._begin_look("end", Debt(), self._warn_of), self._steps)]

    def judge_last_look(self, look, step, until):
        """Returns the errors to raise."""
        if look.advance(until) and look.result.is_valid:
            return self._judge(look.result.finding, step)
        return []


def audit():
    """Compares at once what the ranks hold equal in all optimizers that DistributedOptimizer has wrapped: parameters,
    state and options. Raises ReplicasDiffer on all ranks if a difference is found, HoroError if ranks have made
    different numbers of steps.

    A collective: every rank calls it, with the same optimizers alive, and waits for the others."""
    gc.collect()  # optimizers that are in reference cycles, and are not used any more
    _default.session()
    errors = []
    for each in sorted(_living, key=Audit.order):
        errors += each.look()
    raise_first(errors)


def _look_at_shutdown(session):
    """Compares once more, if all ranks shut down at about the same time. Never fails because of another rank."""
    if sys.exc_info()[1] is not None or session.notice() is not None:  # an exception ends the program, or a notice
        return
    wait_s = max((each._wait_s for each in list(_living) if each._session is session), default=0)
    until, looks = time.monotonic() + wait_s, []
    for each in sorted(_living, key=Audit.order):
        _try(lambda: looks.extend((each, *look) for look in each.last_looks(session, until)))  # noqa: B023
    until, errors = time.monotonic() + wait_s, []
    for each, look, step in looks:
        _try(lambda: errors.extend(each.judge_last_look(look, step, until)))  # noqa: B023
    raise_first(errors)


def _try(act):
    """An error of one optimizer's look at shutdown keeps no other from being judged."""
    try:
        act()
    except (HoroError, RuntimeError) as error:  # RuntimeError: of a device
        _log.debug("the audit's look at shutdown has failed: %s", error)


_default.before_shutdown(_look_at_shutdown)
