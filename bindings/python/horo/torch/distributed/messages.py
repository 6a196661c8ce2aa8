"""Messages between two members of a process group, and what is made of them.

A receive from any source posts a receive for each other member, and takes the one that arrives first. The others stay
posted: they serve the next receives from their sources.
"""

import collections
import threading
import time

import torch

from horo import _native
from horo.torch.distributed.moves import Moves
from horo.torch.distributed.tensors import check, put, readable, single, writable

POLL_S = 0.0005


def _check_size(tensor, source, posted):
    """posted: the memory of a receive that a receive from any source has posted, and that stays if this raises."""
    if posted.numel() != tensor.nbytes:
        raise ValueError(
            f"recv: {tensor.nbytes} bytes from rank {source}, of whom a receive from any source with "
            f"{posted.numel()} bytes expects a message; expected receives of one size"
        )


class _Posted:
    """A receive into memory of its own, posted for no particular call."""

    def __init__(self, flight, memory):
        self.flight, self.memory = flight, memory


class _AnySource:
    """The flight of a receive from any source, with what is posted for it."""

    def __init__(self, group, tensor, tag):
        self._group, self._tensor, self._tag = group, tensor, tag
        self._taken, self.source, self.call, self.is_on_device, self.numbers = None, -1, None, False, ()

    def _take(self):
        """Whether a message is there; takes it."""
        if self._taken is None:
            self.source, self._taken = self._group.take_posted(self._tag, self._tensor)
            if self._taken is not None:
                self._taken.flight.wait_until(time.monotonic() + 1)
        return self._taken is not None

    def wait_until(self, until):
        pause = POLL_S
        while not self._take():
            if time.monotonic() >= until:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 20 * POLL_S)
        return True

    follow_until = wait_until

    def unkeep(self):
        pass

    def has_ended(self):
        return self._take()

    def finish(self):
        put(self._tensor.detach(), self._taken.memory.view(self._tensor.dtype))

    def drop(self):
        if self._taken is not None:
            self._taken.flight.drop()


class Messages(Moves):
    """See ProcessGroup."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._posting = threading.Lock()
        self._posted = {}  # (source, tag, device): deque of _Posted

    def _message(self, call, ends, tag, memory):
        """The flight of a message as bytes. ends: (sender, receiver)."""
        for end in ends:
            if not 0 <= end < self.size():
                raise ValueError(f"{call}: rank {end} is not one of {self.described} of {self.size()}")
        if ends[0] == ends[1]:
            raise ValueError(f"{call}: rank {ends[0]} of {self.described} and itself; a message needs two ranks")
        sender, receiver = ends
        fields = {
            "kind": _native.SEND_RECV,
            "dtype": _native.UINT8,
            "shape": (memory.nbytes,),
            "root": sender,
            "peer": receiver,
        }
        places = (memory, None) if sender == self.rank() else (None, memory)
        return self._start(("message", f"from rank {sender} to rank {receiver}", f"tag {tag}"), fields, places)

    def send(self, tensors, dst, tag=0):
        tensor = single(tensors, "send")
        flight = self._message("send", (self.rank(), dst), tag, readable(tensor))
        return self._work("send", [flight], ([tensor], None))

    def recv(self, tensors, src, tag=0):
        tensor = single(tensors, "recv")
        with self._posting:
            posted = self._posted.get((src, tag, tensor.device))
            if posted:
                _check_size(tensor, src, posted[0].memory)
            taken = posted.popleft() if posted else None
        if taken is not None:
            return self._recv_posted(tensor, src, taken)
        memory, finish = writable(tensor)
        flight = self._message("recv", (src, self.rank()), tag, memory)
        return self._received(flight, tensor, finish, src)

    def _received(self, flight, tensor, finish, source):
        work = self._work("recv", [flight], ([tensor], finish))
        work.source = lambda: source
        return work

    def _recv_posted(self, tensor, source, posted):
        """A receive that a receive from any source has posted."""

        def finish():
            put(tensor.detach(), posted.memory.view(tensor.dtype))

        return self._received(posted.flight, tensor, finish, source)

    def recv_anysource(self, tensors, tag=0):
        tensor = check(single(tensors, "recv"), "recv")
        self._post(tag, tensor)
        flight = _AnySource(self, tensor, tag)
        work = self._work("recv", [flight], ([tensor], flight.finish))
        work.source = lambda: flight.source
        return work

    def _post(self, tag, like):
        """Posts a receive, of as many bytes and on that device, for each other member that has none."""
        with self._posting:
            for source in range(self.size()):
                posted = self._posted.setdefault((source, tag, like.device), collections.deque())
                if source != self.rank() and not posted:
                    memory = torch.empty(like.nbytes, dtype=torch.uint8, device=like.device)
                    posted.append(_Posted(self._message("recv", (source, self.rank()), tag, memory), memory))

    def take_posted(self, tag, like):
        """Takes a posted receive that has ended: (source, _Posted), or (-1, None)."""
        self._post(tag, like)
        with self._posting:
            for source in range(self.size()):
                posted = self._posted[source, tag, like.device]
                if posted and posted[0].flight.has_ended():
                    return source, posted.popleft()
        return -1, None
