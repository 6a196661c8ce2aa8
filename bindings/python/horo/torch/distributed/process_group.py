"""The process group of the backend "horo"."""

import time

import torch

from horo.torch.distributed.coded import Coded
from horo.torch.distributed.group_base import GroupBase
from horo.torch.distributed.messages import Messages
from horo.torch.distributed.moves import Moves
from horo.torch.distributed.reductions import Reductions
from horo.torch.distributed.work import TimedOut, Work
from horo.torch.tracing import hide

BARRIER_TAG = (1 << 31) - 2  # of the messages of monitored_barrier


class ProcessGroup(Coded):
    """A process group of torch.distributed over the process's horo session. Every operation has torch's old and new
    name; they return a Work at once, and write into the caller's memory."""

    def split_group(self, ranks, timeout=None, opts=None, group_name=None, group_desc=None, device_types=None):
        """A group of these members, given as ranks in this group; its members alone make the call, and give it a name
        that no other group has. None on a rank that is no member."""
        from horo.torch.distributed.creation import subgroup

        del opts, device_types
        if self.rank() not in ranks:
            return None
        if group_name is None:
            raise ValueError(f"split_group of {self.described}: expected a group_name, by which the members meet")
        seconds = self.timeout_s if timeout is None else timeout.total_seconds()
        members = [self._ranks[rank] for rank in sorted(ranks)]
        group = subgroup(self.session, members, sorted(ranks).index(self.rank()), group_name, seconds)
        group.setGroupName(group_name)
        group.setGroupDesc(group_desc or "")
        return group

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """A barrier that names the ranks that have not come. The first rank raises TimedOut with the ranks that are
        missing (wait_all_ranks: all of them, else the first one), the others with its name. The texts are Gloo's."""
        seconds = self.timeout_s if timeout is None else timeout.total_seconds()
        if seconds <= 0:
            raise TimedOut(f"Rank {self.rank()} timed out in monitoredBarrier after 0 ms ({self.described})")
        until = time.monotonic() + seconds
        word = torch.zeros(1, dtype=torch.uint8, device="cpu")
        if self.rank() == 0:
            self._wait_for_others(until, seconds, wait_all_ranks)
        elif not all(work.wait_until(until) for work in self._told_first(word)):
            raise TimedOut(
                f"Rank {self.rank()} successfully reached monitoredBarrier, but received errors while waiting for "
                f"send/recv from rank 0. Please check rank 0 logs for faulty rank. (timeout of {seconds:g} s, "
                f"{self.described})"
            )

    def _told_first(self, word):
        """The messages of another rank than the first: that it has come, and that all have."""
        yield self.send([word], 0, BARRIER_TAG)
        yield self.recv([word], 0, BARRIER_TAG)

    def _wait_for_others(self, until, seconds, wait_all_ranks):
        words = {rank: torch.zeros(1, dtype=torch.uint8, device="cpu") for rank in range(1, self.size())}
        works = {rank: self.recv([word], rank, BARRIER_TAG) for rank, word in words.items()}
        missing = []
        for rank, work in works.items():
            if not work.wait_until(until):
                missing.append(str(rank))
                if not wait_all_ranks:
                    break
        if missing:
            raise TimedOut(
                f"{'Ranks' if wait_all_ranks else 'Rank'} {', '.join(missing)} failed to pass monitoredBarrier in "
                f"{1000 * seconds:.0f} ms ({self.described})"
            )
        for work in [self.send([word], rank, BARRIER_TAG) for rank, word in words.items()]:
            work.wait()


for each in (GroupBase, Reductions, Moves, Messages, Coded, ProcessGroup, Work):
    hide(each)
