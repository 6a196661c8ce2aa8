"""Keeper: State.keep(). Resumes where the newest whole checkpoint stood, and saves at borders."""

import itertools
import math
import os
import sys
import time

from horo._arguments import factor, flag, whole
from horo._marks import CHECKPOINT, marked, marks
from horo.checkpoint.content import Content, give, path_text, rest_of
from horo.checkpoint.due import Due
from horo.checkpoint.library import SAVE_SKIPPED, Saver, list_of
from horo.checkpoint.opening import gathered, opened
from horo.elastic.buffers import finish
from horo.errors import HoroError, PeerLost, ShutDown

_NAME = "State.keep"  # what the script calls
EVERY_S = 300.0
LAST_WAIT_S = 5  # of a script that ends with an exception, for a save in flight
GRACE_LEFT_S = 1  # of a notice, for the end of the script behind a save


def keeper_of(folder, every_s, every_rounds, others):
    """A Keeper with these arguments of State.keep(). others: keep, resume, strict. Raises ValueError."""
    keep, resume, strict = others
    if every_s is not None and every_rounds is not None:
        raise ValueError("State.keep(every_s=..., every_rounds=...): expected one of them")
    if every_rounds is not None:
        every_rounds = whole(every_rounds, "State.keep: every_rounds", "a number of steps of at least 1", 1)
    else:
        every_s = EVERY_S if every_s is None else factor(every_s, "State.keep: every_s")
        if not every_s >= 0:
            raise ValueError(f"State.keep: every_s={every_s!r}; expected seconds of at least 0")
    keep = whole(keep, "State.keep: keep", "a number of checkpoints of at least 1", 1)
    options = keep, flag(resume, "State.keep: resume"), flag(strict, "State.keep: strict")
    return Keeper(path_text(folder, "State.keep"), Due(every_s, every_rounds), *options)


def is_first(border):
    return border.members.index(border.me) == 0


def say(border, text):
    """One line of the job."""
    if is_first(border):
        print(f"horo: {text}", file=sys.stderr, flush=True)


class Keeper:
    """One rank's part. One thread uses it, that of the State; the library writes in another one."""

    def __init__(self, folder, due, keep, resume, strict):
        """See State.keep(). due: a Due."""
        self.folder, self._due = folder, due
        self._keep, self._resume, self._strict = keep, resume, strict
        self._has_begun = False
        self._skips = False  # the last save was left out
        self.last_error = None
        self._saver = None
        self._in_flight = None  # the step whose save is being written
        self._begun = 0  # the step of the last save that was not left out, or of the start
        self._saved_at = time.monotonic()
        marks.makes(CHECKPOINT)

    def settings(self):
        """Equal on all ranks."""
        return [self.folder, *self._due.settings(), self._keep, self._resume, self._strict]

    # The start

    def start(self, state, border):
        """All ranks begin a function of elastic.run. Goes on where the newest whole checkpoint stood, in the first
        function alone. Whether it does. Collective over the world; blocks. Raises ValueError if the State has other
        fields, names or shapes; HoroError if there are checkpoints and none is whole."""
        paths = [] if self._has_begun else self._agreed_paths(border)
        self._has_begun, errors = True, []
        for path in paths:
            error = self._load(state, border, path)
            if error is None:
                say(border, f"resumed from step {state.step} of {path}")
                break
            say(border, f"the checkpoint {path} is left: {error}")
            errors.append(error)
        self._begun = state.step
        self._due.begin(state.step)
        self._saved_at = time.monotonic()
        if errors and len(errors) == len(paths):
            raise HoroError(
                f"no checkpoint of {self.folder} is whole; the newest: {errors[0]}. To begin anew: another folder, or "
                "State.keep(resume=False), which moves them away"
            )
        return len(paths) > len(errors)

    def _agreed_paths(self, border):
        """The checkpoints that rank 0 sees, newest first; it is the one that locks the folder."""
        seen, error = [], None
        try:
            if is_first(border):
                seen = self._own_paths(border)
        except (HoroError, OSError) as found:
            error = str(found)
        rows = gathered(border.session, "keep", [self.settings(), seen, error])
        for rank, (settings, _, _) in enumerate(rows):
            if settings != rows[0][0]:
                raise ValueError(f"State.keep(): rank {rank} has {settings}, and rank 0 has {rows[0][0]}")
        if rows[0][2] is not None:
            raise HoroError(rows[0][2])
        return rows[0][1]

    def _own_paths(self, border):
        self._saver = Saver()
        try:
            self._saver.lock(self.folder)
        except HoroError as error:
            if os.path.isdir(self.folder) and os.access(self.folder, os.W_OK):  # another job has it
                raise
            say(border, f"no checkpoints can be written: {error}")
            if not os.path.isdir(self.folder):
                return []
        paths = [one["path"] for one in list_of(self.folder)]
        if self._resume or not paths:
            return paths
        aside = next(
            path
            for number in itertools.count(1)
            if not os.path.lexists(path := os.path.join(self.folder, f"before-{number}"))
        )
        os.mkdir(aside)
        for path in paths:
            os.rename(path, os.path.join(aside, os.path.basename(path)))
        say(border, f"{self.folder} had {len(paths)} checkpoints, which are in {aside} now")
        return []

    def _load(self, state, border, path):
        """The State is that of the checkpoint, on all ranks; or the text of what is wrong with the files."""
        content, reader = Content(state._fields(_NAME), _NAME), None
        try:
            reader, room = opened(border.session, path, content)
            reader.load(border.session, [tensor for tensor, _ in room])
        except HoroError as error:
            if isinstance(error, PeerLost):
                raise
            return str(error)
        finally:
            if reader is not None:
                reader.close()
        finish([buffer for _, buffer in room], _NAME)
        state._take(content.fields, rest_of(reader.index))
        for field in content.fields:
            field.loaded()
        return None

    # Borders

    def at_border(self, state, border):
        """All ranks are between two rounds, at which the State is equal on them."""
        self._collect(border)
        if self._due.ask(state.step, lambda: self._agree(border, state.step)):
            self.save(state, border)

    def _agree(self, border, step):
        since = time.monotonic() - self._saved_at
        return gathered(border.session, "time", [since, since / max(1, step - self._due.saved)])[0]

    def save(self, state, border):
        """Collective over the world; blocks until the memory is copied."""
        with marked(CHECKPOINT):
            state._prepare_save()
            self._begin(state, border)

    def _begin(self, state, border):
        if self._strict:
            self._raise_last(border)
        content = Content(state._fields(_NAME), _NAME)
        pairs = content.tensors()
        step, path = state.step, f"{self.folder}/step-{state.step:09d}"
        self._due.begin(step)
        self._saved_at = time.monotonic()
        self._saver = self._saver or Saver()
        try:
            rest = content.rest(state._place())
            tensors = [tensor for _, tensor in pairs]
            begun = self._saver.begin(border.session, path, rest, tensors, step=step, keep=self._keep, lock=True)
            if begun == SAVE_SKIPPED:
                if not self._skips:
                    say(border, f"no checkpoint of step {step}: the one before is still being written")
                self._skips = True
                return
            self._skips, self._begun = False, step
            give(self._saver, pairs)
            self._saver.start()
        except ValueError:
            if content.is_current():
                raise
            return self._begin(state, border)
        except HoroError as error:
            if isinstance(error, (PeerLost, ShutDown)):
                raise
            self._failed(border, step, error)
            return
        self._in_flight = step

    def _failed(self, border, step, error):
        self.last_error = str(error)
        say(border, f"the checkpoint of step {step} was not written: {error}. Training goes on")

    def _collect(self, border, timeout_ms=0):
        """Tells of a save that has failed."""
        if self._in_flight is None:
            return
        step = self._in_flight
        try:
            if self._saver.wait(timeout_ms):
                self._in_flight = None
        except HoroError as error:
            self._in_flight = None
            self._failed(border, step, error)

    def _raise_last(self, border):
        """Raises the last error of any rank on all of them."""
        for rank, text in enumerate(gathered(border.session, "last save", self.last_error)):
            if text is not None:
                who = "" if text.startswith("rank ") else f"rank {rank}: "
                raise HoroError(f"State.keep(strict=True): {who}{text}")

    def lose(self, members):
        """These members are gone: what they had to write may be missing."""
        if self._in_flight is not None:
            self._saver.give_up(
                f"{'ranks' if len(members) > 1 else 'rank'} {', '.join(map(str, members))} died meanwhile"
            )

    # Ends

    def leave(self, state, border, grace_s):
        """A host is drained, and all ranks know it. grace_s: of this rank, or None: it stays."""
        last_ms = None if grace_s is None else int(1000 * max(0, grace_s - GRACE_LEFT_S))
        self._wait(border, last_ms)
        if state.step > self._begun:
            self.save(state, border)
        if grace_s is not None:
            self._wait(border, last_ms)

    def finish(self, state, border):
        """The function has ended on all ranks: its end is saved. Blocks until it is on the disk."""
        self._wait(border)
        if state.step > self._begun:
            self.save(state, border)
            self._wait(border)

    def _wait(self, border, timeout_ms=None):
        """Until no save is in flight, or for at most so long."""
        until = math.inf if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while self._in_flight is not None and time.monotonic() < until:
            self._collect(border, 100)

    def abandon(self, border):
        """The function has ended: the folder is free for another rank 0, or another job. A save in flight, which there
        is after an exception, is waited for and given up."""
        self.unlock()
        self._wait(border, 1000 * LAST_WAIT_S)
        if self._in_flight is not None:
            self._saver.give_up("the script has ended with an exception")
            self._collect(border, 1000 * LAST_WAIT_S)

    def unlock(self):
        """This rank leaves the job, or was evicted: the rank 0 of the others takes the lock of the folder."""
        if self._saver is not None:
            self._saver.unlock()

    def to_give(self):
        """For a rank that joins."""
        return [self._begun, *self._due.state()]

    def take(self, given):
        """This rank has joined."""
        self._has_begun = True
        self._begun, *rest = given
        self._due.load_state(rest)
        self._saved_at = time.monotonic()
