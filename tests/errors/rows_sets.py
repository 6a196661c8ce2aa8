"""Invalid process sets and joins."""

import torch
from table import on_ranks

import horo.torch as hvd

SECTION = "Process sets and join"


@on_ranks(SECTION, "A process set that was not added", do="`add_process_set` on all ranks")
def set_that_was_not_added():
    hvd.allreduce(torch.ones(2), name="weights", process_set=hvd.ProcessSet([0, 1]))


@on_ranks(SECTION, "A process set of all ranks", do="Use `global_process_set`", ranks=3)
def set_of_the_same_ranks():
    hvd.add_process_set([0, 1, 2])


@on_ranks(SECTION, "A rank that the world does not have", do="Ranks are numbers from 0 to `size()` - 1", ranks=3)
def set_of_unknown_ranks():
    hvd.add_process_set([0, 7])


@on_ranks(SECTION, "Ranks that add different process sets", do="Make the same calls on all ranks", ranks=3)
def different_sets():
    hvd.add_process_set([0, 1] if hvd.rank() else [0, 2])


@on_ranks(SECTION, "A tensor of a set that this rank is not in", do="Check `process_set.included()` first", ranks=3)
def tensor_of_others():
    pair = hvd.add_process_set([0, 1])
    try:
        if not pair.included():
            hvd.allreduce(torch.ones(2), name="weights", process_set=pair)
    finally:
        hvd.remove_process_set(pair)


@on_ranks(
    SECTION,
    "A root that is not in the set",
    do="Pass a member of the set; `root_rank` is a number in the world",
    ranks=3,
)
def root_of_others():
    pair = hvd.add_process_set([0, 1])
    try:
        if pair.included():
            hvd.broadcast(torch.ones(2), 2, name="weights", process_set=pair)
    finally:
        hvd.remove_process_set(pair)


@on_ranks(SECTION, "A collective that needs a rank that has joined", do="Call it before any rank joins")
def gather_after_join():
    if hvd.rank() == 1:
        hvd.join()
        return
    hvd.allreduce(torch.ones(1), name="heard")
    try:
        hvd.allgather(torch.ones(2), name="rows")
    finally:
        hvd.join()


@on_ranks(SECTION, "Ranks that make different meshes", do="Make the same call on all ranks", ranks=4)
def different_meshes():
    hvd.mesh(dp=2, tp=2) if hvd.rank() else hvd.mesh(dp=4)


@on_ranks(
    SECTION, "A mesh that the ranks do not fill", do="Sizes whose product is `size()`; -1 takes what is left", ranks=3
)
def mesh_of_another_size():
    hvd.mesh(dp=-1, tp=2)


@on_ranks(SECTION, "A set with a name, made by a rank outside of it", do="The members alone make the call", ranks=3)
def named_set_of_others():
    hvd.add_process_set([(hvd.rank() + 1) % hvd.size()], name="others")
