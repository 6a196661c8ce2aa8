"""Checkpoints: files that are damaged or other ones, folders that cannot be written, objects that do not fit."""

import fcntl
import functools
import pathlib
import tempfile

import torch
from table import on_ranks

import horo.torch as hvd

SECTION = "Checkpoints"
PLACES = ((r"/tmp/\w+", "<folder>"), (r"process \d+ on", "process <pid> on"))
LOAD, SAVE = "`horo.checkpoint.load`, all ranks", "`horo.checkpoint.save`, all ranks"
refused = functools.partial(on_ranks, SECTION, where=LOAD + "; nothing is written", changing=PLACES)


def saved(outputs=3):
    """A new folder, which all ranks see, and the model that is saved in its checkpoint "one"."""
    folder = hvd.broadcast_object(tempfile.mkdtemp(dir="/tmp") if hvd.rank() == 0 else None, root_rank=0)
    model = torch.nn.Linear(2, outputs)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.checkpoint.save(f"{folder}/one", {"model": model}).wait()
    return pathlib.Path(folder), model


@on_ranks(SECTION, "A tensor of another shape", where=LOAD, do="Make the model as it was saved", changing=PLACES)
def checkpoint_of_another_shape():
    folder, _ = saved(3)
    _, model = saved(4)
    hvd.checkpoint.load(folder / "one", {"model": model})


@on_ranks(SECTION, "A field that is not in it", where=LOAD, do="Load the fields that it has", changing=PLACES)
def checkpoint_without_a_field():
    folder, model = saved()
    hvd.checkpoint.load(folder / "one", {"model": model, "epoch": 0})


@refused("A tensor whose elements share memory", do="Load into a copy, by `clone()`")
def checkpoint_into_shared_memory():
    folder, _ = saved()
    hvd.checkpoint.save(folder / "two", {"windows": torch.zeros(3, 2)}).wait()
    hvd.checkpoint.load(folder / "two", {"windows": torch.zeros(4).unfold(0, 2, 1)})


@on_ranks(
    SECTION,
    "Two fields of whose tensors one has the name of the other",
    where=SAVE,
    do="Another name for one of the fields",
    changing=PLACES,
)
def checkpoint_of_two_fields_with_one_name():
    folder, _ = saved()
    net = torch.nn.ModuleDict({"ema": torch.nn.Linear(2, 3)})
    hvd.checkpoint.save(folder / "two", {"net": net, "net.ema": torch.ones(3)})


@refused("A tied weight that is two in it", do="Load into a model that does not tie them")
def checkpoint_of_a_model_without_a_tie():
    folder, _ = saved()
    apart, tied = (torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]) for _ in range(2))
    tied[1].weight = tied[0].weight
    hvd.broadcast_parameters(apart.state_dict(), 0)
    hvd.checkpoint.save(folder / "two", {"model": apart}).wait()
    hvd.checkpoint.load(folder / "two", {"model": tied})


@refused("A damaged file", do="Another checkpoint; `State.keep` takes an older one by itself")
def damaged_checkpoint():
    folder, model = saved()
    if hvd.rank() == 0:
        part = folder / "one/part-00000-of-00002.safetensors"
        data = bytearray(part.read_bytes())
        data[-1] ^= 1
        part.write_bytes(data)
    hvd.barrier()
    hvd.checkpoint.load(folder / "one", {"model": model})


@on_ranks(SECTION, "Another folder", where=LOAD, do="`horo checkpoint list` names those of a folder", changing=PLACES)
def no_checkpoint():
    folder, model = saved()
    if hvd.rank() == 0:
        (folder / "two").mkdir()
        (folder / "two/index.txt").touch()
    hvd.barrier()
    hvd.checkpoint.load(folder / "two", {"model": model})


@on_ranks(SECTION, "A folder of other files has its name", where=SAVE, do="Choose another name", changing=PLACES)
def folder_of_others():
    folder, model = saved()
    if hvd.rank() == 0:
        (folder / "two").mkdir()
        (folder / "two/mine").touch()
    hvd.barrier()
    hvd.checkpoint.save(folder / "two", {"model": model}).wait()


@on_ranks(
    SECTION, "A folder that cannot be made", where=SAVE, do="A file system that all ranks can write", changing=PLACES
)
def folder_that_cannot_be_made():
    _, model = saved()
    hvd.checkpoint.save("/proc/horo/one", {"model": model}).wait()


@on_ranks(
    SECTION,
    "A value of an unknown type",
    where="`horo.checkpoint.save`, this rank",
    do="`trust=True`, or the protocol `horo_state()`",
    changing=PLACES,
)
def value_of_an_unknown_type():
    folder, model = saved()
    hvd.checkpoint.save(folder / "two", {"model": model, "path": folder})


@on_ranks(
    SECTION,
    "Another job keeps its checkpoints in the folder",
    where="a function of `elastic.run`, all ranks",
    do="A folder for each job",
    changing=PLACES,
)
def folder_of_another_job():
    folder, model = saved()
    with open(folder / ".lock", "a+") as lock:
        if hvd.rank() == 0:
            fcntl.flock(lock, fcntl.LOCK_EX)
        hvd.barrier()
        state = hvd.elastic.State(model=model)
        state.keep(folder, every_rounds=1)
        hvd.elastic.run(lambda state: None)(state)


@on_ranks(SECTION, "Both intervals of `State.keep`", where="`State.keep`", do="One of them", changing=PLACES)
def two_intervals():
    folder, model = saved()
    hvd.elastic.State(model=model).keep(folder, every_s=60, every_rounds=10)
