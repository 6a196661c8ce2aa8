"""Mistakes with divided optimizers, and with fully_shard."""

import torch
from table import on_ranks

import horo.torch as hvd
import horo.zero

SECTION = "DistributedOptimizer"


class Muon(torch.optim.SGD):
    """A class of which horo does not know whether it updates each element by itself."""


@on_ranks(
    SECTION, "`state_dict()` of a divided optimizer", do="`optimizer.gather_state(root_rank)` on all ranks before"
)
def state_of_a_part():
    model = torch.nn.Linear(300, 3)
    optimizer = horo.zero.DistributedOptimizer(torch.optim.Adam(model.parameters()), model.named_parameters())
    model(torch.ones(1, 300)).sum().backward()
    optimizer.step()
    optimizer.state_dict()


@on_ranks(SECTION, 'A matrix optimizer, and `partition="blocks"`', do='Leave `partition` out, or `"tensors"`')
def blocks_of_matrices():
    model = torch.nn.Linear(300, 3)
    horo.zero.DistributedOptimizer(Muon(model.parameters()), model.named_parameters(), partition="blocks")


@on_ranks(SECTION, "A sparse gradient of a parameter that is divided", do="`sparse_as_dense=True`")
def sparse_and_divided():
    table = torch.nn.Embedding(300, 3, sparse=True)
    optimizer = horo.zero.DistributedOptimizer(torch.optim.SGD(table.parameters()), table.named_parameters())
    table(torch.tensor([1])).sum().backward()
    optimizer.step()


@on_ranks(SECTION, "A redundancy that the job cannot have", do="Start the job with `--min-np`")
def copies_in_a_static_job():
    model = torch.nn.Linear(300, 3)
    horo.zero.DistributedOptimizer(torch.optim.Adam(model.parameters()), redundancy=1)


@on_ranks(SECTION, "`fully_shard()` without modules to divide", do="Give the class of the model's blocks")
def no_unit():
    horo.zero.fully_shard(torch.nn.Linear(300, 3), torch.nn.Conv2d)


@on_ranks("Tensors", "An allgather into memory of another dtype", do="Memory of the dtype of the tensor")
def out_of_another_dtype():
    hvd.allgather_async(torch.ones(2), rows=(2,) * hvd.size(), out=torch.ones(2 * hvd.size()).double())


@on_ranks("Tensors", "An allgather whose `rows` are not those of the tensor", do="The rows of each rank's own tensor")
def rows_of_another_tensor():
    hvd.allgather_async(torch.ones(2), rows=(3,) * hvd.size())
