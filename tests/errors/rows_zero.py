"""Mistakes with divided optimizers, and with fully_shard."""

import re

import torch
from table import FOLDER, by_command, on_ranks

import horo.torch as hvd
import horo.zero

SECTION = "DistributedOptimizer"


class Muon(torch.optim.SGD):
    """A class of which horo does not know whether it updates each element by itself."""


class Rows(torch.optim.SGD):
    """A class that needs whole matrices, and says that it updates each element by itself."""

    horo_elementwise = True

    def step(self, closure=None):
        super().step(closure)
        for param in (param for group in self.param_groups for param in group["params"]):
            self.state[param]["row"] = torch.zeros(2)


def divided(kind=torch.optim.Adam, **options):
    """A divided optimizer, and its model."""
    model = torch.nn.Linear(256, 2, bias=False)
    return horo.zero.DistributedOptimizer(kind(model.parameters()), model.named_parameters(), **options), model


def stepped(kind):
    optimizer, model = divided(kind)
    model(torch.ones(1, 256)).sum().backward()
    optimizer.step()
    return optimizer


@on_ranks(
    SECTION, "`state_dict()` of a divided optimizer", do="`optimizer.gather_state(root_rank)` on all ranks before"
)
def state_of_a_part():
    stepped(torch.optim.Adam).state_dict()


@on_ranks(SECTION, "`gather_state()` for no rank of the process set", do="A rank of it, or None for all of them")
def state_for_no_rank():
    stepped(torch.optim.Adam).gather_state(hvd.size())


@on_ranks(SECTION, 'A matrix optimizer, and `partition="blocks"`', do='Leave `partition` out, or `"tensors"`')
def blocks_of_matrices():
    divided(Muon, partition="blocks")


@on_ranks(SECTION, "A matrix optimizer with `horo_elementwise`", do="Do not set it, or `partition='tensors'`")
def state_of_another_shape():
    stepped(Rows).gather_state()


@on_ranks(SECTION, "An unknown partition", do='`"blocks"`, `"tensors"`, or leave it out')
def unknown_partition():
    divided(partition="rows")


@on_ranks(SECTION, "A sparse gradient of a parameter that is divided", do="`sparse_as_dense=True`")
def sparse_and_divided():
    table = torch.nn.Embedding(300, 3, sparse=True)
    optimizer = horo.zero.DistributedOptimizer(torch.optim.SGD(table.parameters()), table.named_parameters())
    table(torch.tensor([1])).sum().backward()
    optimizer.step()


@on_ranks(SECTION, "A parameter that is a part of another tensor, and divided", do="A copy of it: `contiguous()`")
def part_of_a_tensor():
    part = torch.nn.Parameter(torch.ones(8, 4)[:, :2])
    optimizer = horo.zero.DistributedOptimizer(torch.optim.SGD([part], lr=0.1), [("part", part)])
    part.sum().backward()
    optimizer.step()


@on_ranks(SECTION, "A redundancy that the job cannot have", do="Start the job with `--min-np`")
def copies_in_a_static_job():
    divided(redundancy=1)


@on_ranks(SECTION, "An optimizer that is divided twice", do="Wrap it once")
def divided_twice():
    horo.zero.DistributedOptimizer(divided()[0])


@on_ranks(SECTION, "LBFGS, divided", do="Another optimizer")
def lbfgs_divided():
    divided(torch.optim.LBFGS)


@on_ranks(SECTION, "`op=Adasum`, divided", do="`op=hvd.Average`")
def adasum_divided():
    divided(op=hvd.Adasum)


@on_ranks(SECTION, "`cross_barrier=True`, divided", do="Leave it out")
def cross_barrier_divided():
    divided(cross_barrier=True)


@on_ranks(SECTION, "`fully_shard()` without modules to divide", do="Give the class of the model's blocks")
def no_unit():
    horo.zero.fully_shard(torch.nn.Linear(300, 3), torch.nn.Conv2d)


@on_ranks(SECTION, "`fully_shard()` of no module", do="Give the model, and make the optimizer afterwards")
def no_module():
    horo.zero.fully_shard([torch.nn.Linear(2, 2)], torch.nn.Linear)


@on_ranks(SECTION, "`fully_shard()` with another stage", do="2 or 3, or `horo.zero.DistributedOptimizer`")
def unknown_stage():
    horo.zero.fully_shard(torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.nn.Linear, stage=1)


@on_ranks(SECTION, "`fully_shard()` with `reshard_after_forward`", do="Leave it out")
def stage_said_twice():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    horo.zero.fully_shard(model, torch.nn.Linear, stage=2, reshard_after_forward=True)


@by_command(
    "Ranks that die, stop or leave",
    "A rank of a divided optimizer and its buddy die in one step",
    do="Start the job again from a checkpoint",
    where="`step()`, every rank that is left",
)
def buddies_lost(run):
    script = FOLDER.parent / "python/programs/zero_deaths.py"
    words = [run.python, str(script), "zero", "1:updated:2", "2:updated:2"]
    done = run([run.horo, "run", "-n", "4", "--min-np", "1", "--restarts", "0", *words])
    said = set(re.findall(r"^\[\d+\] lost (.*)$", done.stdout, re.M))
    return "\n".join(sorted(f"ShardLost: {text}" for text in said))


@on_ranks("Tensors", "An allgather into memory of another dtype", do="Memory of the dtype of the tensor")
def out_of_another_dtype():
    hvd.allgather_async(torch.ones(2), rows=(2,) * hvd.size(), out=torch.ones(2 * hvd.size()).double())


@on_ranks("Tensors", "An allgather whose `rows` are not those of the tensor", do="The rows of each rank's own tensor")
def rows_of_another_tensor():
    hvd.allgather_async(torch.ones(2), rows=(3,) * hvd.size())
