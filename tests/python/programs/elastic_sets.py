"""Process sets with shrinks=True in an elastic job: elastic_sets.py PART ARGUMENTS. Ranks kill themselves; the members
that are left go on in the set."""

import ctypes
import os
import signal
import sys

import numpy

import horo.numpy as hvd
from horo import _default, _native
from horo._specs import Spec

hvd.init()
was = hvd.rank()


def kill_myself():
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_world(size):
    """Until the engine has a world of so many ranks at most, which the script does not see yet."""
    world = _native.SetInfo(ctypes.sizeof(_native.SetInfo), size=size + 1)
    while world.size > size:
        _native.quick.horo_get_set(_default.session().pointer, 0, world)


def ended(call):
    """The result of a call or of a handle, or its error."""
    try:
        result = call() if callable(call) else hvd.synchronize(call)
    except hvd.PeerLost as error:
        assert error.origin >= 0, error
        return f"PeerLost {error.origin}: {error}"
    parts = result if isinstance(result, list) else [result]
    return " ".join("nothing" if part is None else str(part.ravel()[:6].tolist()) for part in parts)


def calls(victim):
    """Ranks 0, 1, 2 and 4 of five have calls in flight in the set when one of them dies; then they make them again."""
    part = hvd.add_process_set([0, 1, 2, 4], shrinks=True)
    mine = numpy.full(2, 2.0**was, dtype=numpy.float32)
    rows = numpy.full((12, 1), 2.0**was, dtype=numpy.float32)

    def starts(middle, last):
        yield "average", lambda: hvd.allreduce_async(mine, name="average", process_set=part)
        yield "unnamed", lambda: hvd.allreduce_async(mine, op=hvd.Sum, process_set=part)
        yield "unit", lambda: hvd.grouped_allreduce_async([mine, mine], name="unit", op=hvd.Sum, process_set=part)
        yield "gathered", lambda: hvd.allgather_async(mine, "gathered", part)
        yield "of first", lambda: hvd.broadcast_async(mine, 0, "of first", part)
        yield "of middle", lambda: hvd.broadcast_async(mine, middle, "of middle", part)
        yield "of last", lambda: hvd.broadcast_async(mine, last, "of last", part)
        yield "at first", lambda: hvd.reduce_async(mine, 0, "at first", process_set=part)
        yield "at last", lambda: hvd.gather_async(mine, last, "at last", part)
        yield "dealt", lambda: hvd.reducescatter_async(rows, "dealt", op=hvd.Sum, process_set=part)
        yield "exchanged", lambda: hvd.alltoall_async(rows, name="exchanged", process_set=part)
        yield "scattered", lambda: hvd.scatter_async(rows, 0, name="scattered", process_set=part)
        yield "barrier", lambda: hvd.barrier_async(part)
        if hvd.rank() == 0:
            yield "message", lambda: hvd.send_async(mine, middle, "message", part)
        if hvd.rank() == middle and (victim == 4 or hvd.size() == 4):  # received when the loss has been seen
            yield "message", lambda: lambda: hvd.recv(mine + 0, 0, "message", part)

    if was == victim:
        hvd.barrier()
        kill_myself()
    handles = [(name, start()) for name, start in starts(2, 4)] if part.included() else []
    assert part.ranks == [0, 1, 2, 4]
    hvd.barrier()
    for name, handle in handles:
        print(name, "=", ended(handle))
    hvd.barrier()
    assert part.ranks == {1: [0, 1, 3], 4: [0, 1, 2]}[victim] and part.size() == 3 and part.shrinks
    if part.included():
        assert part.rank() == part.ranks.index(hvd.rank())
        for name, start in starts(*part.ranks[1:]):
            handle = start()
            print("again:", name, "=", ended(handle))
    hvd.barrier()


def stale(victims, call, root):
    """Members call before the script can see that others have died, one after the other."""
    victims = [int(victim) for victim in victims.split(",")]
    part = hvd.add_process_set([0, 1, 2, 4], shrinks=True)
    rows = numpy.full((12, 4), was, dtype=numpy.float32)
    hvd.barrier()
    for count, victim in enumerate(victims):
        if was == victim:
            kill_myself()
        wait_for_world(4 - count)
    assert hvd.size() == 5 and part.size() == 4
    if part.included():
        forms = {
            "broadcast": lambda: hvd.broadcast(rows, root, "x", part),
            "gather": lambda: hvd.gather(rows, root, "x", part),
            "alltoall": lambda: hvd.alltoall(rows, name="x", process_set=part),
            "allreduce": lambda: hvd.allreduce(rows, name="x", process_set=part),
        }
        print(call, "=", ended(forms[call])[:20], part.size())
        assert hvd.broadcast(numpy.array([was]), part.ranks[0], "after", part).item() == min({0, 1, 2, 4} - {*victims})
    hvd.barrier()


def gone():
    """The members of a set of four die, one after the other."""
    pair = hvd.add_process_set([1, 2], shrinks=True)
    three = hvd.add_process_set(hvd.ProcessSet([0, 1, 2], shrinks=True))
    seen = []
    hvd.on_change(lambda change: seen.append((change.lost, pair.ranks, three.ranks)))
    hvd.barrier()
    if was == 2:
        kill_myself()
    hvd.barrier()
    assert seen == [((2,), [1], [0, 1])], seen
    if was == 1:
        assert hvd.allreduce(numpy.ones(1), op=hvd.Sum, process_set=pair).item() == 1 and pair.rank() == 0
    for ranks in ([0, 1], [1]):
        try:
            hvd.add_process_set(ranks)
            raise AssertionError("a second set of the same ranks was added")
        except hvd.Mismatch as error:
            assert "exists already" in str(error), error
    hvd.barrier()
    if was == 1:
        kill_myself()
    hvd.barrier()
    assert seen[1:] == [((1,), [], [0])], seen
    assert pair.ranks == [] and pair.size() == 0 and not pair.included() and pair.process_set_id == 1
    found = ended(lambda: hvd.allreduce(numpy.ones(1), process_set=pair))
    assert found.startswith("PeerLost 1: process set 1 has lost all of its members"), found
    assert hvd.remove_process_set(pair) and pair.process_set_id is None
    if was == 0:
        assert hvd.allreduce(numpy.ones(1), op=hvd.Sum, process_set=three).item() == 1
    assert hvd.remove_process_set(three)
    hvd.add_process_set([1])


def join():
    """A member of the set dies while another one has joined it."""
    part = hvd.add_process_set([0, 1, 2], shrinks=True)
    joined = hvd.join_async(part) if was == 0 else None
    hvd.barrier()
    if was == 2:
        kill_myself()
    if was == 1:
        assert hvd.allreduce(numpy.ones(1), op=hvd.Sum, process_set=part).item() == 1
        joined = hvd.join_async(part)
    if was < 2:
        assert hvd.synchronize(joined) == 1 and part.ranks == [0, 1]
        assert hvd.allreduce(numpy.ones(1), op=hvd.Sum, process_set=part).item() == 2
    hvd.barrier()


def differ():
    """shrinks is part of the agreement."""
    try:
        hvd.add_process_set([0, 1], shrinks=was == 1)
        raise AssertionError("sets that differ were added")
    except hvd.Mismatch as error:
        assert "shrinks=False on ranks 0, 2; shrinks=True on rank 1" in str(error), error
    part = hvd.add_process_set([0, 1], shrinks=True)
    assert part.shrinks and hvd.global_process_set.shrinks and not hvd.ProcessSet([0]).shrinks
    try:
        hvd.ProcessSet([0], shrinks=1)
        raise AssertionError("shrinks=1 was accepted")
    except ValueError as error:
        assert "shrinks=1; expected True or False" in str(error), error


def members():
    """Sets that their members alone add: rank 2 dies, and then the number of rank 3 is another one."""
    session = _default.session()

    def failed(call):
        try:
            call()
        except hvd.PeerLost as error:
            return f"PeerLost {error.origin}: {error}"
        raise AssertionError("the call had a result")

    def summed(number):
        mine = numpy.full(1, 10.0**was)
        spec = Spec("x", _native.ALL_REDUCE, dtype=_native.FLOAT64, shape=(1,), set=number)
        session.wait([session.submit(spec, mine.ctypes.data, mine.ctypes.data, mine)])
        return mine.item()

    pair = session.add_set([0, 2], name="pair") if was in (0, 2) else None
    shrinking = session.add_set([0, 2, 3], shrinks=True, name="shrinking") if was != 1 else None
    ranks = (ctypes.c_int32 * 2)(0, 3)
    flags = _native.SET_BY_MEMBERS
    late = _native.quick.horo_add_set_with(session.pointer, ranks, 2, b"late", flags) if was == 0 else None
    hvd.barrier()
    if was == 2:
        kill_myself()
    hvd.barrier()
    if was == 0:
        found = failed(lambda: session.wait([late]))
        assert found.startswith("PeerLost 2: tensor 'add_process_set 'late'': the ranks changed"), found
        found = failed(lambda: summed(pair))
        assert found.startswith("PeerLost 2: process set 'pair' has lost a member: "), found
        found = failed(lambda: session.remove_set(pair))
        assert found.startswith("PeerLost 2: process set 'pair' has lost a member: "), found
    if was in (0, 3):
        assert summed(shrinking) == 1001
        for name in ("late", "pair"):  # the names are free again
            assert summed(session.add_set([0, 2], name=name)) == 1001
        session.remove_set(shrinking)
    hvd.barrier()


PART = sys.argv[1]
{
    "calls": lambda: calls(int(sys.argv[2])),
    "stale": lambda: stale(sys.argv[2], sys.argv[3], int(sys.argv[4])),
    "gone": gone,
    "join": join,
    "differ": differ,
    "members": members,
}[PART]()
print("end of", was, flush=True)
