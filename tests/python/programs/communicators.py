"""init(comm=...) and ProcessSet(comm), as Horovod has them: with ranks, and with what has the methods of mpi4py's
communicators."""

import os

import claims
import torch
from claims import raises

import horo.torch as hvd

RANK, SIZE = int(os.environ["HORO_RANK"]), int(os.environ["HORO_SIZE"])
HALF = list(range(RANK % 2, SIZE, 2))  # of this rank


class Bare:
    """A communicator that does not tell which ranks it has."""

    def __init__(self, ranks):
        self.ranks = list(ranks)

    def Get_rank(self):
        return self.ranks.index(RANK)

    def Get_size(self):
        return len(self.ranks)


class Communicator(Bare):
    """Its allgather() is called by all ranks of the world at the same time, of whatever communicator."""

    def allgather(self, value):
        values = hvd.allgather_object(value)
        return [values[rank] for rank in self.ranks]


def parts_of_the_world_are_refused_with_the_remedy():
    for part in ([0], Communicator([RANK])):
        with raises(NotImplementedError, f"a part of the job's {SIZE} ranks", "process_sets=[hvd.ProcessSet(comm)]"):
            hvd.init(comm=part)
    for wrong, kind in (([0] * SIZE, ValueError), (7, TypeError), (Bare(range(SIZE)[::-1]), ValueError)):
        with raises(kind, "init(comm="):
            hvd.init(comm=wrong)
        assert not hvd.is_initialized()


def all_ranks_are_the_world_in_each_form():
    for comm in (list(range(SIZE))[::-1], range(SIZE), Bare(range(SIZE))):
        hvd.init(comm=comm)
        assert (hvd.rank(), hvd.size()) == (RANK, SIZE)
        hvd.shutdown()


def sum_over(process_set):
    return hvd.allreduce(torch.tensor([float(RANK)]), op=hvd.Sum, process_set=process_set).item()


def each_rank_is_in_the_set_of_its_own_communicator():
    """As after MPI's Split, which gives ranks different communicators by one call."""
    comm = Communicator(HALF)
    half = hvd.ProcessSet(comm)
    assert half.mpi_comm is comm and half.ranks is None and half.process_set_id is None and "Communicator" in repr(half)
    hvd.init(Communicator(range(SIZE)), process_sets=[half])
    assert half.ranks == HALF and half.size() == len(HALF) and half.rank() == HALF.index(RANK) and half.included()
    assert sum_over(half) == sum(HALF) and sum_over(hvd.global_process_set) == sum(range(SIZE))
    again = hvd.add_process_set(hvd.ProcessSet(comm))
    assert again.process_set_id != half.process_set_id and sum_over(again) == sum(HALF)
    for each in (half, again):
        assert hvd.remove_process_set(each)
    assert sum_over(hvd.add_process_set(half)) == sum(HALF)
    assert sum_over(hvd.add_process_set(hvd.ProcessSet(Bare(range(SIZE))))) == sum(range(SIZE))


def a_communicator_that_does_not_tell_its_ranks_is_refused():
    with raises(TypeError, "without an allgather()", "ProcessSet([0, 1])"):
        hvd.add_process_set(hvd.ProcessSet(Bare(HALF)))


claims.check(
    parts_of_the_world_are_refused_with_the_remedy,
    all_ranks_are_the_world_in_each_form,
    each_rank_is_in_the_set_of_its_own_communicator,
    a_communicator_that_does_not_tell_its_ranks_is_refused,
    init=False,
)
