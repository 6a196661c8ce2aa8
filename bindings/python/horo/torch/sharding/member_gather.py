"""Gathers that tell which members have taken part.

In an elastic job a gather runs again among the ranks that are left, and its result is the same on all of them. Each
contribution begins with the number of its member, so the numbers in a result are an agreement: no other message is
needed.
"""

import functools
import hashlib
import os
import typing

import torch

from horo import _default
from horo._handles import synchronize
from horo.torch.functions import allgather_object
from horo.torch.ops import grouped_allgather_async


class Present(typing.NamedTuple):
    """The members that took part in a gather."""

    members: tuple
    hosts: tuple  # a number of the host of each


class MembersChanged(Exception):
    """Other members took part than those that were expected: on all ranks alike. present: they."""

    def __init__(self, present):
        super().__init__(present)
        self.present = present


def my_member():
    """The number of this rank in the job, which it keeps."""
    return _default.members()[_default.rank()]


@functools.lru_cache
def _host():
    """Equal for ranks that share a kernel and a network, or HORO_HOST_ID. Local ranks do not tell: a rank that joins
    may be far from the others of its host."""
    given = os.environ.get("HORO_HOST_ID")
    if not given:
        with open("/proc/sys/kernel/random/boot_id") as file:
            given = f"{file.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"
    return int.from_bytes(hashlib.blake2b(given.encode(), digest_size=7).digest(), "big")


class MemberGather:
    """Collective over the members of a process set; blocks."""

    def __init__(self, process_set, label):
        """label: the beginning of the names of its collectives, equal on all members."""
        self.process_set, self.label = process_set, label

    def tensors(self, tensors, name, header=(), expected=None):
        """Gathers flat tensors, each of which may have another length on each member. Returns the Present, the headers
        by member, and for each tensor the parts by member. header: integers. Raises MembersChanged if other members
        took part than those expected."""
        head = torch.tensor([my_member(), _host(), *header], dtype=torch.int64, device="cpu")
        handle = grouped_allgather_async(
            [head, *tensors], name=f"{self.label}/{name}", process_set=self.process_set, with_rows=True
        )
        heads, *found = [part.split(list(rows)) for part, rows in synchronize(handle)]
        heads = [one.tolist() for one in heads]
        return self._checked(heads, expected), [one[2:] for one in heads], found

    def objects(self, value, expected=None):
        """Gathers objects, pickled. Returns the Present and the objects by member. Raises as tensors()."""
        rows = allgather_object([my_member(), _host(), value], f"{self.label}/objects", self.process_set)
        return self._checked(rows, expected), [row[2] for row in rows]

    @staticmethod
    def _checked(heads, expected):
        present = Present(tuple(head[0] for head in heads), tuple(head[1] for head in heads))
        if expected is not None and present.members != tuple(expected):
            raise MembersChanged(present)
        return present
