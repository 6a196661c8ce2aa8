"""What a script sees of a death: rank, size, on_change, process sets. Rank 1 of four kills itself, then rank 2."""

import ctypes
import os
import signal
import tempfile

import numpy

import horo.numpy as hvd
from horo import _default, _native

hvd.init()
was = hvd.rank()
log = []


def note(change):
    log.append(("note", change, hvd.rank(), hvd.size()))


def check(change):  # a function may run collectives
    log.append(("check", hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="check").item(), hvd.size()))


def fails(change):
    raise LookupError("a function of the script failed")


def engine_size():
    """The size of the world that the script has not seen yet."""
    world = _native.SetInfo(ctypes.sizeof(_native.SetInfo))
    _native.quick.horo_get_set(_default.session().pointer, 0, world)
    return world.size


def die(rank):
    hvd.barrier()
    if was == rank:
        os.kill(os.getpid(), signal.SIGKILL)


pair, others, kept = (hvd.add_process_set(ranks) for ranks in ([0, 1], [2, 3], [0, 3]))
places = {others: "others"}
remove_note = hvd.on_change(note)
hvd.on_change(check)
remove_fails = hvd.on_change(fails)

die(1)
while engine_size() == 4:
    pass
seen = [hvd.rank(), hvd.size(), pair.ranks, others.ranks]
assert seen == [was, 4, [0, 1], [2, 3]], seen
try:
    hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="after")
    raise AssertionError("the exception of the function was lost")
except LookupError:
    pass
now = {0: 0, 2: 1, 3: 2}[was]
with tempfile.TemporaryDirectory() as folder:
    hvd.start_timeline(f"{folder}/trace.json")
    assert os.listdir(folder) == [f"trace.rank{now}.json" if now else "trace.json"]
    hvd.stop_timeline()
change = log[0][1]
assert change == (was, now, 4, 3, 1, (1,)) and change.lost == (1,) and not hasattr(change, "__dict__"), change
assert log == [("note", change, now, 3), ("check", 3.0, 3)], log
assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (now, 3, was, 3)
assert hvd.cross_size() == 1 and hvd.global_process_set.ranks == [0, 1, 2]
assert os.environ["HORO_STARTED_BY"].split(":")[1:3] == [str(now), "3"]

# A set that has lost a member: its object stays, its use fails by name, and it is made anew.
assert pair.ranks == [0] and pair.size() == 1 and pair.included() == (was == 0) and pair.process_set_id == 1
for use in (lambda: hvd.allreduce(numpy.ones(1), process_set=pair), lambda: hvd.broadcast(numpy.ones(1), 0, "b", pair)):
    try:
        use()
        raise AssertionError("a set that has lost a member was used")
    except hvd.PeerLost as error:
        assert "process set 1 has lost a member" in str(error) and error.origin == 1, error
if was == 3:  # not a collective call: the ranks make it at different times, or not at all
    assert hvd.remove_process_set(pair) and pair.process_set_id is None and not hvd.remove_process_set(pair)
hvd.barrier()
if was != 3:
    assert hvd.remove_process_set(pair)
hvd.add_process_set(pair)  # the members that are left
assert pair.ranks == [0] and pair.process_set_id == 4

# Sets without the lost rank are renumbered.
assert others.ranks == [1, 2] and kept.ranks == [0, 2] and places[others] == "others"
for one in (others, kept):
    if one.included():
        total = hvd.allreduce(numpy.array([float(was)]), op=hvd.Sum, process_set=one, name="s").item()
        assert total == {others: 5, kept: 3}[one] and one.rank() == one.ranks.index(now)
        root = one.ranks[-1]
        assert hvd.broadcast(numpy.array([was]), root, process_set=one, name="r").item() == 3
assert hvd.remove_process_set(others)

remove_note()
remove_fails()
remove_fails()
del log[:]
die(2)
hvd.barrier()
now = {0: 0, 3: 1}[was]
assert log == [("check", 2.0, 2)] and (hvd.rank(), hvd.size(), hvd.local_rank()) == (now, 2, was), log
assert kept.ranks == [0, 1] and hvd.allreduce(numpy.ones(1), op=hvd.Sum, process_set=kept).item() == 2
print("seen by", was)
hvd.shutdown()
try:
    hvd.init()
except hvd.HoroError as error:
    assert "call init() once" in str(error)
    print("refused")
