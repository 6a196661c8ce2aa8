"""Small gradients that become ready one after the other: one call submits them all.

A hook that runs Python, looks at a tensor and a foreign call cost a microsecond each, which a model of many small
tensors pays for every one of them. So of small ones autograd only notes that they are ready (its hook is a list's
append), and what was noted is submitted dozens at a time, by the hook of a parameter that has one of its own. A step is
mostly like the last one; so what can be said of a burst's parameters is said once.
"""

import array
import ctypes
import operator

from horo._native import quick
from horo._session import array_of
from horo.torch.arrays import addresses_of, places_of, versions_of

SMALL_BYTES = 64 << 10  # what is larger goes by itself: to move it takes longer than to submit it
MOST, MOST_BYTES = 128, 2 << 20  # in one call, about: after so many small parameters one has a hook of its own

_NBYTES = operator.attrgetter("nbytes")


def is_small(slot):
    """Its gradients may come in bursts."""
    return slot.nbytes <= SMALL_BYTES and not slot.dtype.is_complex


def share_of(slot):
    """Of a burst, when it has that gradient."""
    return max(1 / MOST, slot.nbytes / MOST_BYTES)


class Bursts:
    """Of one optimizer. Autograd may append to `ready` in any thread; one thread at a time the rest."""

    def __init__(self):
        self.ready = []  # parameters whose gradients are complete and not submitted
        self.in_flight = []
        self._known = []  # Lists of the last step's bursts, in order
        self._at = 0  # the next of them
        self._covered, self._count, self._rest = None, 0, None  # the last answer of rest_of(), and to what

    def take(self):
        """What is ready."""
        taken = self.ready[:]
        del self.ready[: len(taken)]
        return taken

    def known(self, params, speaker):
        """The Lists of these parameters, if the last step had the same burst here."""
        if self._at < len(self._known):
            lists = self._known[self._at]
            alike = lists.speaker is speaker and len(lists.params) == len(params)
            if alike and all(map(operator.is_, lists.params, params)):
                self._at += 1
                return lists
        return None

    def learn(self, slots, speaker):
        """The Lists of a burst that the last step did not have here."""
        del self._known[self._at :]
        self._known.append(Lists(slots, speaker))
        self._at += 1
        return self._known[-1]

    def submit(self, session, lists):
        """Submits the gradients where they lie, or in their views. False if one of them is odd, or the session is
        closed, and nothing was submitted."""
        gradients = [param.grad for param in lists.params]
        places = places_of(gradients, lists.looks, lists.nbytes)
        if places is None:
            return False
        burst = Burst(lists, gradients, *places)
        self.in_flight.append(burst)  # first: an interrupt may come right after the call
        status = burst.submit(session.pointer)
        if status >= 0:
            return True
        self.in_flight.pop()
        if not session.closed:
            session.fail(status)
        return False

    def tell(self):
        """All slots know what is in flight of them. Until then they look as if nothing was, and a Burst speaks for
        them."""
        for burst in self.in_flight:
            burst.tell()

    def tell_cut_off(self):
        """The same where an interrupt may have come before the call."""
        for burst in self.in_flight:
            if burst.works[0] == 0:
                burst.tell()

    def rest_of(self, slots):
        """Those that know themselves what is in flight of them."""
        covered = [burst.lists for burst in self.in_flight if not burst.told]
        if covered != self._covered or len(slots) != self._count:
            ids = {id(slot) for lists in covered for slot in lists.slots}
            self._rest = [slot for slot in slots if id(slot) not in ids]
            self._covered, self._count = covered, len(slots)
        return self._rest

    def slots(self):
        """Those that do not."""
        return [slot for burst in self.in_flight if not burst.told for slot in burst.lists.slots]

    def works(self, rest):
        """All that are in flight: of slots() in their order, then those of the rest, as an array."""
        parts = [burst.works for burst in self.in_flight if not burst.told]
        parts.append(array_of([slot.work for slot in rest]))
        joined = b"".join(parts)  # not one by one: there are thousands
        return (ctypes.c_int64 * (len(joined) // ctypes.sizeof(ctypes.c_int64))).from_buffer_copy(joined)

    def check(self):
        """The works have ended well. Slots whose gradient is not their result as it came are told."""
        for burst in self.in_flight:
            if not burst.told and not burst.has_its_results():
                burst.tell()

    def start_over(self):
        self.ready.clear()
        for burst in self.in_flight:
            if burst.lists.places:
                for slot in burst.lists.slots:
                    slot.zeroed = False
        self.in_flight.clear()
        self._at = 0

    def forget(self):
        """Keys and places may be others from now on."""
        self._known.clear()


class Lists:
    """What is the same for the same slots in each step."""

    def __init__(self, slots, speaker):
        """speaker: the slot whose hook submits them, None where step() does."""
        self.slots, self.speaker = slots, speaker
        self.params = [slot.param for slot in slots]
        self.looks = [slot.look for slot in slots]
        self.nbytes = [slot.nbytes for slot in slots]
        self.keys = (ctypes.c_int64 * len(slots))(*[slot.key for slot in slots])
        self.places = [slot.place for slot in slots] if any(slot.place for slot in slots) else None


class Burst:
    """What is submitted in one call."""

    def __init__(self, lists, gradients, storages, addresses):
        self.lists = lists
        self.told = False  # the slots know
        self.works = (ctypes.c_int64 * len(gradients))()
        self._gradients, self._storages, self._addresses = gradients, storages, addresses
        if lists.places is not None and lists.places != self._addresses:
            self._bring_home()
        self._versions = versions_of(self._gradients)

    def _bring_home(self):
        for i, slot in enumerate(self.lists.slots):
            if slot.place and slot.place != self._addresses[i]:
                self._gradients[i] = slot.bring_home(self._gradients[i])
                self._storages[i], self._addresses[i] = slot.view, slot.place

    def submit(self, pointer):
        count = len(self.works)
        data = (ctypes.c_void_p * count).from_buffer(array.array("Q", self._addresses))  # a third of the way by (*...)
        return quick.horo_submit_many_in_place(pointer, self.lists.keys, data, count, self.works)

    def tell(self):
        if self.told:
            return
        parts = zip(self.lists.slots, self._gradients, self._versions, self._storages, self._addresses, self.works)
        for slot, gradient, version, storage, address, work in parts:
            slot.memory, slot.version, slot.storage, slot.address = gradient, version, storage, address
            slot.work = work or None
            slot.passes_left = 0
        self.told = True

    def has_its_results(self):
        """The gradients are what was submitted, lie where they lay, and nobody wrote to them since."""
        now = [param.grad for param in self.lists.params]
        return (
            all(map(operator.is_, now, self._gradients))
            and addresses_of(now) == self._addresses
            and list(map(_NBYTES, now)) == self.lists.nbytes
            and versions_of(now) == self._versions
        )
