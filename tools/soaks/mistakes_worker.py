"""One rank of tools/soak mistakes: makes the mistakes of its argument, round by round, several at the same time as
correct calls; prints a line of JSON for each mistake. Between rounds the ranks wait for each other through a file, not
by horo.
"""

import ctypes
import gc
import json
import math
import mmap
import os
import random
import struct
import sys
import time

import mistakes_list
import numpy

import horo
from horo import _default, _native
from horo._specs import Spec

RENDEZVOUS_S = 120
MOST_ELEMENTS = 1 << 24
GRADIENTS = 6
ROUNDS_PER_MODEL = 6  # then the gradients get other names, and form new plans
DTYPES = {_native.FLOAT64: numpy.float64, _native.BOOL: numpy.uint8}


def number(word):
    return getattr(_native, word) if isinstance(word, str) else word


class Rendezvous:
    """Lets ranks wait for each other without horo. Each rank has an entry with the number of its last rendezvous."""

    def __init__(self, path, rank, size):
        self.rank, self.size, self.count = rank, size, 0
        with open(path, "r+b") as file:
            self.entries = mmap.mmap(file.fileno(), 8 * size)

    def wait(self, absent=()):
        self.count += 1
        struct.pack_into("=q", self.entries, 8 * self.rank, self.count)
        end = time.monotonic() + RENDEZVOUS_S
        while self._missing() - set(absent):
            if time.monotonic() > end:
                raise TimeoutError(f"not all ranks arrived at rendezvous {self.count} within {RENDEZVOUS_S} s")
            time.sleep(0.001)

    def _missing(self):
        """The ranks that have not arrived."""
        counts = struct.unpack_from(f"={self.size}q", self.entries)
        return {rank for rank, count in enumerate(counts) if count < self.count}


class Call:
    """A tensor that this rank submits."""

    def __init__(self, name, value, /, **options):
        options = {"name": name, "kind": "ALL_REDUCE", "shape": (4,)} | options
        self.address = options.pop("address", None)
        for word in ("kind", "op", "dtype"):
            if word in options:
                options[word] = number(options[word])
        self.spec = Spec(**options)
        elements = math.prod(self.spec.shape)  # an invalid shape may give any number
        dtype = DTYPES.get(self.spec.dtype, numpy.float32)
        self.array = numpy.full(elements if 0 < elements < MOST_ELEMENTS else 4, value, dtype)
        self.value, self.work = value, None

    def submit(self):
        data = self.array.ctypes.data if self.address is None else None
        out = None if self.spec.kind == _native.ALL_GATHER else data
        self.work = _default.session().submit(self.spec, data, out, self.array)
        return self

    def submit_twice(self):
        """Submits the tensor twice in one call, so that the first submit cannot end before the second one."""
        session, data = _default.session(), self.array.ctypes.data
        once = (ctypes.sizeof(_native.Submission), 0, session.key(self.spec), data, data)
        twice = (_native.Submission * 2)(once, once)
        session._check(_native.quick.horo_submit_many(session.pointer, twice, 2, (_native.c_int64 * 2)()))

    def end(self):
        """Waits; returns ("", ""), or the class of the error and its text."""
        session = _default.session()
        try:
            session.wait([self.work])
        except horo.HoroError as error:
            return type(error).__name__, str(error)
        finally:
            session.release([self.work])
        return "", ""

    def untouched(self):
        return bool((self.array == self.value).all())


class Mistake:
    """One entry of mistakes_list on this rank: begin() among the round's other calls, end() after them."""

    def __init__(self, rank, size, described):
        self.number, self.kind, self.culprit = described["number"], described["kind"], described["culprit"]
        self.rank, self.size = rank, size
        self.mine = rank == self.culprit
        self.others = [other for other in range(size) if other != self.culprit]
        self.value = float(rank + 1)
        self.name = f"mistake {self.number}"
        self.call, self.said, self.text, self.wrong = None, "", "", ""
        self.begin_s = time.monotonic()
        self.ms = 0  # from its begin to its end on this rank

    def unnamed(self):
        return self.kind in mistakes_list.ALONE_IN_A_ROUND["unnamed"]

    def options(self):
        found = mistakes_list.DISAGREEMENTS.get(self.kind)
        options = (found.wrong if self.mine else found.right) if found else {}
        return options | ({"name": None} if self.unnamed() else {})

    def gradient(self, name):
        """The call for the gradient of the mistake; None if this rank does not submit it."""
        if self.kind == "missing gradient" and self.mine:
            return None
        self.name, self.call = name, Call(name, self.value, stepwise=1, **self.options())
        return self.call

    def finish(self):
        self.wrong = self.end()
        self.ms = round((time.monotonic() - self.begin_s) * 1000)

    def begin(self):
        self.begin_s = time.monotonic()
        if self.kind in mistakes_list.REFUSED:
            self._begin_refused()
        elif self.kind not in mistakes_list.MISSING or not self.mine:
            self.call = Call(self.name, self.value, **self.options()).submit()
        if self.kind == "freed tensor" and self.mine:
            self.call.array = None
            gc.collect()
            numpy.full(64, -1.0, numpy.float32)  # possibly at the same address
        if self.kind == "dropped handle" and self.mine:
            _default.session().drop([self.call.work])
            self.call = None

    def _begin_refused(self):
        wrong, _ = mistakes_list.REFUSED[self.kind]
        if self.mine:
            call = Call(self.name, self.value, **wrong)
            try:
                call.submit_twice() if self.kind == "twice in flight" else call.submit()
            except ValueError as error:
                self.said, self.text = "ValueError", str(error)
        self.call = Call(self.name, self.value, **self.options()).submit()

    def end(self):
        """Waits for this rank's call, if there is one; returns the failure of the check, or ""."""
        said, text = self.call.end() if self.call else ("", "")
        if self.kind in mistakes_list.REFUSED:
            return self._judge_refused(said)
        self.said, self.text = said, text
        if self.kind in mistakes_list.DISAGREEMENTS:
            return self._judge(text, *self._disagreement())
        if self.kind in mistakes_list.MISSING and self.call:
            submitted = mistakes_list.ranks_text(self.others)
            return self._judge(text, f"submitted by {submitted}, but not by rank {self.culprit} within")
        if said:
            return f"ended with {said}: {text}"
        if self.call is None or self.call.array is None:
            return ""
        return self._judge_sum()

    def late(self):
        """Makes the culprit's late call, after the calls of the others have failed."""
        if self.kind == "missing unnamed" and self.mine:
            self.call = Call(None, self.value).submit()
            self.finish()

    def _disagreement(self):
        found = mistakes_list.DISAGREEMENTS[self.kind]
        yield f"{found.wrong_text} on rank {self.culprit}"
        yield f"{found.right_text} on {mistakes_list.ranks_text(self.others)}"
        if self.unnamed():
            yield "matched by their order"

    def _judge(self, text, *parts):
        if self.said != "Mismatch":
            return f"ended with {self.said or 'no error'}: {text}"
        parts = (*parts, "all_reduce#" if self.unnamed() else f"'{self.name}'")
        missing = [part for part in parts if part not in text]
        if missing:
            return f"{missing} not in: {text}"
        return "" if self.call.untouched() else f"the tensor was changed to {self.call.array}"

    def _judge_refused(self, said):
        wanted = mistakes_list.REFUSED[self.kind][1] if self.mine else ""
        if wanted not in self.text or bool(wanted) != bool(self.text):
            return f"the call raised {self.text!r}, expected {wanted!r}"
        return f"the correct call afterwards ended with {said}" if said else self._judge_sum()

    def _judge_sum(self):
        wanted = self.size * (self.size + 1) / 2
        return "" if (self.call.array == wanted).all() else f"{self.call.array}, expected {wanted}"

    def report(self):
        keys = ("number", "rank", "wrong", "said", "text", "ms")
        print(json.dumps({key: getattr(self, key) for key in keys}), flush=True)


class Rank:
    """The rounds of this rank."""

    def __init__(self, task):
        self.task, self.rank, self.size = task, horo.rank(), horo.size()
        self.chance = random.Random(f"{task['seed']}/{task['job']}/{self.rank}")
        self.rendezvous = Rendezvous(task["rendezvous"], self.rank, self.size)

    def pause(self):
        if self.chance.random() < 0.3:
            time.sleep(self.chance.uniform(0, 0.003))

    def round(self, number, described):
        mistakes = [Mistake(self.rank, self.size, one) for one in described]
        gradients, calls = self.gradients(number, mistakes), []
        things = [m for m in mistakes if m.kind not in mistakes_list.ALONE_IN_A_ROUND["gradient"]] + gradients
        things += [Call(f"right {i}", self.rank + 1.0) for i in range(3)]
        self.rendezvous.wait()
        for thing in self.chance.sample(things, len(things)):
            self.pause()
            if isinstance(thing, Mistake):
                thing.begin()
            else:
                calls.append(thing.submit())
        late_ones_last = self.chance.sample(mistakes, len(mistakes))
        for mistake in sorted(late_ones_last, key=lambda mistake: mistake.kind in mistakes_list.MISSING):
            mistake.finish()
        self.check([call for call in calls if not any(call is mistake.call for mistake in mistakes)])
        if number % 3:
            _default.session().step_end()
        self.rendezvous.wait()
        for mistake in mistakes:
            mistake.late()
            mistake.report()
        self.rendezvous.wait()
        self.check([Call("after", self.rank + 1.0).submit(), Call(None, self.rank + 1.0).submit()])

    def gradients(self, number, mistakes):
        """The round's gradients; one of them may be a mistake."""
        names = [f"model {number // ROUNDS_PER_MODEL} gradient {i}" for i in range(GRADIENTS)]
        calls = [Call(name, self.rank + 1.0, stepwise=1) for name in names]
        for mistake in mistakes:
            if mistake.kind in mistakes_list.ALONE_IN_A_ROUND["gradient"]:
                at = mistake.number % GRADIENTS
                calls[at] = mistake.gradient(names[at])
        return [call for call in calls if call is not None]

    def check(self, calls):
        """Checks that correct calls succeed beside mistakes."""
        wanted = self.size * (self.size + 1) / 2
        for call in calls:
            said, text = call.end()
            if said or not (call.array == wanted).all():
                raise AssertionError(f"{call.spec.name} ended with {said or call.array}: {text}; expected {wanted}")

    def ending(self, described):
        """Makes the last mistake, which ends the job on all ranks."""
        mistake, kind = Mistake(self.rank, self.size, described), described["kind"]
        self.rendezvous.wait()
        mistake.begin_s = time.monotonic()
        call = Call("last", 1.0, shape=(1 << 20,))
        if mistake.mine:
            self.end_here(kind, call)
            return
        try:
            self.pause()
            mistake.said, mistake.text = call.submit().end()
        except horo.HoroError as error:
            mistake.said, mistake.text = type(error).__name__, str(error)
        mistake.ms = round((time.monotonic() - mistake.begin_s) * 1000)
        mistake.wrong = self.judge_ending(mistake)
        mistake.report()
        self.rendezvous.wait(absent=[mistake.culprit])  # a rank that leaves while another waits is one more mistake

    def end_here(self, kind, call):
        self.pause()
        if kind == "leaves in flight":
            call.submit()
        if kind in ("leaves in flight", "shutdown"):
            horo.shutdown()
        if kind == "abort":
            _default.session().abort(f"rank {self.rank}: no more data")
        if kind == "exception":
            raise ArithmeticError("the loss is not a number")

    def judge_ending(self, mistake):
        culprit, said, text = f"rank {mistake.culprit}", mistake.said, mistake.text
        wanted = {
            "shutdown": ("Mismatch", f": {culprit} has left"),
            "end of program": ("Mismatch", f": {culprit} has left"),
            "exception": ("PeerLost", culprit, "ArithmeticError: the loss is not a number"),
            "abort": ("PeerLost", culprit, "no more data"),
        }
        if mistake.kind == "leaves in flight":
            right = said == "" or culprit in text
        else:
            kind, first, *more = wanted[mistake.kind]
            right = said == kind and first in text.split("\n")[0] and all(part in text for part in more)
        return "" if right else f"ended with {said or 'no error'}: {text}"


def other_setting(described):
    """Calls init with a setting that must be equal on all ranks, and differs on the culprit."""
    rank, size = int(os.environ["HORO_RANK"]), int(os.environ["HORO_SIZE"])
    mistake = Mistake(rank, size, described)
    try:
        horo.init(settings={"HORO_SEGMENT_BYTES": 4096 if mistake.mine else 8192})
    except ValueError as error:
        mistake.said, mistake.text = "ValueError", str(error)
    right = f"4096 on rank {mistake.culprit}" in mistake.text and "HORO_SEGMENT_BYTES must be equal" in mistake.text
    mistake.wrong = "" if right else f"init raised {mistake.text!r}"
    mistake.ms = round((time.monotonic() - mistake.begin_s) * 1000)
    mistake.report()


def main():
    task = json.loads(sys.argv[1])
    if task["ending"]["kind"] == "other setting":
        return other_setting(task["ending"])
    horo.init(settings={"HORO_STALL_LIMIT_MS": task["limit_ms"], "HORO_ANSWER_TIMEOUT_MS": task["answer_ms"]})
    rank = Rank(task)
    for number, described in enumerate(task["rounds"]):
        rank.round(number, described)
    rank.ending(task["ending"])
    print("done", flush=True)


if __name__ == "__main__":
    main()
