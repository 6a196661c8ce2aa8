"""Process sets and join on four ranks: overlapping sets at the same time, uneven data, and errors."""

import random

import claims_bare
import numpy
from claims_bare import raises
from oracle import reduced, same, value

import horo
import horo.numpy as hvd

PAIR = hvd.ProcessSet([0, 1])
TRIPLE = hvd.ProcessSet([3, 1, 2])


def of(ranks, shape=(50,), dtype="float64"):
    return [value(rank, dtype, shape) for rank in ranks]


def mine(shape=(50,), dtype="float64"):
    return value(hvd.rank(), dtype, shape)


def sets_of_init_are_there():
    assert (PAIR.process_set_id, TRIPLE.process_set_id) == (1, 2)
    assert TRIPLE.ranks == [1, 2, 3] and TRIPLE.size() == 3
    assert TRIPLE.included() == (hvd.rank() > 0) and TRIPLE.rank() == hvd.rank() - 1
    assert hvd.global_process_set.process_set_id == 0 and hvd.global_process_set.ranks == [0, 1, 2, 3]


def every_collective_runs_in_a_set():
    if not TRIPLE.included():
        return
    me, whole = TRIPLE.rank(), value(7, "float64", (7, 2))
    same(hvd.allreduce(mine(), process_set=TRIPLE), reduced(of(TRIPLE.ranks), hvd.Average))
    uneven = [value(rank, "float64", (rank, 2)) for rank in TRIPLE.ranks]
    same(hvd.allgather(uneven[me], process_set=TRIPLE), numpy.concatenate(uneven))
    same(hvd.broadcast(mine(), 3, process_set=TRIPLE), value(3, "float64", (50,)))
    total = reduced(of(TRIPLE.ranks, (7, 2)), hvd.Average)
    same(hvd.reducescatter(mine((7, 2)), process_set=TRIPLE), numpy.array_split(total, 3)[me])
    turned = numpy.stack([part[me] for part in of(TRIPLE.ranks, (3, 2))])
    same(hvd.alltoall(mine((3, 2)), process_set=TRIPLE), turned)
    total = hvd.reduce(mine(), 2, op=hvd.Max, process_set=TRIPLE)
    assert (total is None) == (hvd.rank() != 2)
    gathered = hvd.gather(mine((1,)), 2, process_set=TRIPLE)
    if hvd.rank() == 2:
        same(total, reduced(of(TRIPLE.ranks), hvd.Max))
        same(gathered, numpy.concatenate(of(TRIPLE.ranks, (1,))))
    same(hvd.scatter(whole, 1, process_set=TRIPLE), numpy.array_split(whole, 3)[me])
    if hvd.rank() == 1:
        hvd.send(numpy.array([5.0]), 3, name="inside", process_set=TRIPLE)
    if hvd.rank() == 3:
        assert hvd.recv(numpy.zeros(1), 1, name="inside", process_set=TRIPLE) == 5.0
    same(hvd.grouped_allreduce([mine(), mine()], process_set=TRIPLE)[1], reduced(of(TRIPLE.ranks), hvd.Average))
    hvd.barrier(process_set=TRIPLE)


def sets_at_work_at_once_do_not_wait_for_one_another():
    """Each rank submits to its sets in a different order, with the same names in all sets."""
    jobs = [(ranks, i) for ranks in (hvd.global_process_set, PAIR, TRIPLE) if ranks.included() for i in range(20)]
    random.Random(hvd.rank()).shuffle(jobs)
    handles = [
        (ranks, i, hvd.allreduce_async(mine() * i, name=f"job{i}", op=hvd.Sum, process_set=ranks)) for ranks, i in jobs
    ]
    random.Random(100 + hvd.rank()).shuffle(handles)
    for ranks, i, handle in handles:
        same(hvd.synchronize(handle), reduced([part * i for part in of(ranks.ranks)], hvd.Sum))


def a_set_works_while_another_waits():
    """Rank 0 delays the pair until the triple, which includes rank 1, has finished."""
    if hvd.rank() == 0:
        hvd.recv(numpy.zeros(1), 1, name="go on")
    late = hvd.allreduce_async(mine(), name="late", process_set=PAIR) if PAIR.included() else None
    if TRIPLE.included():
        hvd.allreduce(mine(), name="soon", process_set=TRIPLE)
    if hvd.rank() == 1:
        hvd.send(numpy.zeros(1), 0, name="go on")
    if late is not None:
        same(hvd.synchronize(late), reduced(of([0, 1]), hvd.Average))


def sets_come_and_go():
    numbers = []
    for _ in range(3):
        added = hvd.add_process_set([0, 2])
        numbers.append(added.process_set_id)
        if added.included():
            same(hvd.allreduce(mine(), name="brief", process_set=added), reduced(of([0, 2]), hvd.Average))
        assert hvd.remove_process_set(added) is True
        assert added.process_set_id is None and added.size() is None
        assert hvd.remove_process_set(added) is False
        with raises(ValueError, "ProcessSet([0, 2])", "add_process_set"):
            hvd.allreduce(mine(), process_set=added)
    assert len(set(numbers)) == 3
    assert hvd.remove_process_set(hvd.global_process_set) is False


def invalid_sets_are_refused():
    with raises(ValueError, "each rank once"):
        hvd.ProcessSet([1, 1])
    with raises(ValueError, "at least one rank"):
        hvd.ProcessSet([])
    with raises(ValueError, "already"):
        hvd.add_process_set(PAIR)
    with raises(ValueError):
        hvd.add_process_set([1, 0])
    with raises(ValueError):
        hvd.add_process_set([0, 17])
    with raises(TypeError, "process_set="):
        hvd.allreduce(mine(), process_set=[0, 1])
    with raises(ValueError, "root_rank=0", "ProcessSet([1, 2, 3])"):
        hvd.broadcast(mine(), 0, process_set=TRIPLE)
    with raises(ValueError, "dynamic"):
        hvd.init(process_sets="static")
    if not TRIPLE.included():
        with raises(ValueError, "0"):
            hvd.allreduce(mine(), name="outside", process_set=TRIPLE)
    hvd.barrier()


def ranks_that_disagree_about_a_set_get_an_error():
    with raises(hvd.Mismatch, "ranks"):
        hvd.add_process_set([0, 3] if hvd.rank() else [0, 2])
    hvd.barrier()


def ranks_without_data_join():
    """Rank r has 2 + 3r batches: averages divide by the size of the set; all ranks get the last rank."""
    for _ in range(2):
        for number in range(2 + 3 * hvd.rank()):
            here = [rank for rank in range(hvd.size()) if number < 2 + 3 * rank]
            result = hvd.allreduce(numpy.full(3, 1.0 + hvd.rank()), name="batch")
            assert (result == sum(rank + 1 for rank in here) / hvd.size()).all(), (number, result)
            pair = hvd.grouped_allreduce([numpy.ones(2), numpy.ones(1, "int32")], name="unit", op=hvd.Sum)
            assert all((part == len(here)).all() for part in pair)
        assert hvd.join() == hvd.size() - 1
    same(hvd.allgather(numpy.array([hvd.rank()])), numpy.arange(hvd.size()))


def what_needs_all_ranks_fails_while_some_have_joined():
    if hvd.rank() == 0:
        assert hvd.join() != 0
    else:
        assert hvd.allreduce(numpy.ones(1), name="heard", op=hvd.Sum) == hvd.size() - 1
        with raises(hvd.Mismatch, "joined", "0"):
            hvd.allgather(numpy.ones(2), name="gathered")
        hvd.barrier()
        hvd.join()
    same(hvd.allreduce(numpy.ones(1), op=hvd.Sum), numpy.full(1, float(hvd.size())))


def a_join_of_one_set_leaves_the_others_alone():
    joined = hvd.join_async(process_set=PAIR) if hvd.rank() == 0 else None
    same(hvd.allreduce(mine(), name="world"), reduced(of(range(4)), hvd.Average))
    if hvd.rank() == 1:
        assert hvd.join(process_set=PAIR) in (0, 1)
    if joined is not None:
        assert hvd.synchronize(joined) in (0, 1)


def another_session_has_no_sets():
    hvd.shutdown()
    assert PAIR.process_set_id is None and PAIR.rank() is None
    hvd.init(process_sets=[PAIR])
    assert PAIR.process_set_id == 1 and TRIPLE.process_set_id is None
    if PAIR.included():
        same(hvd.allreduce(mine(), process_set=PAIR), reduced(of([0, 1]), hvd.Average))
    hvd.barrier()


horo.init(process_sets=[PAIR, TRIPLE])
claims_bare.check(
    sets_of_init_are_there,
    every_collective_runs_in_a_set,
    sets_at_work_at_once_do_not_wait_for_one_another,
    a_set_works_while_another_waits,
    sets_come_and_go,
    invalid_sets_are_refused,
    ranks_that_disagree_about_a_set_get_an_error,
    ranks_without_data_join,
    what_needs_all_ranks_fails_while_some_have_joined,
    a_join_of_one_set_leaves_the_others_alone,
    another_session_has_no_sets,
    init=False,
)
