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

import horo
import horo.torch as hvd


class Present(typing.NamedTuple):
    """The members that took part in a gather."""

    ids: tuple
    hosts: tuple  # host_id() of each


class Changed(Exception):
    """Other members took part than those that were expected: on all ranks alike."""

    def __init__(self, present):
        super().__init__(present)
        self.present = present


def my_id():
    """The number of this rank in the job, which it keeps."""
    return horo.members()[horo.rank()]


@functools.lru_cache
def host_id():
    """Equal for ranks that share a kernel and a network, or HORO_HOST_ID. Local ranks do not tell: a rank that joins
    may be far from the others of its host."""
    given = os.environ.get("HORO_HOST_ID")
    if not given:
        with open("/proc/sys/kernel/random/boot_id") as file:
            given = f"{file.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"
    return int.from_bytes(hashlib.blake2b(given.encode(), digest_size=7).digest(), "big")


class Exchange:
    """Collective over the members of a process set; blocks."""

    def __init__(self, process_set, label):
        """label: the beginning of the names of its collectives, equal on all members."""
        self.process_set, self.label = process_set, label

    def tensors(self, tensors, name, header=(), expected=None):
        """Gathers flat tensors, each of which may have another length on each member. Returns the Present, the headers
        by member, and for each tensor the parts by member. header: integers. Raises Changed if the numbers of the
        members are not those expected."""
        head = torch.tensor([my_id(), host_id(), *header], dtype=torch.int64, device="cpu")
        handle = hvd.grouped_allgather_async(
            [head, *tensors], name=f"{self.label}/{name}", process_set=self.process_set, with_rows=True
        )
        heads, *found = [part.split(list(rows)) for part, rows in hvd.synchronize(handle)]
        heads = [one.tolist() for one in heads]
        return self._checked(heads, expected), [one[2:] for one in heads], found

    def objects(self, value, expected=None):
        """Gathers objects. Returns the Present and the objects by member."""
        rows = hvd.allgather_object([my_id(), host_id(), value], f"{self.label}/objects", self.process_set)
        return self._checked(rows, expected), [row[2] for row in rows]

    @staticmethod
    def _checked(heads, expected):
        present = Present(tuple(head[0] for head in heads), tuple(head[1] for head in heads))
        if expected is not None and present.ids != tuple(expected):
            raise Changed(present)
        return present
