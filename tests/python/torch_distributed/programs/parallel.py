"""What is built on torch.distributed, against one process: FSDP2, FSDP1, DTensor, tensor parallel,
ZeroRedundancyOptimizer, PowerSGD, Join, a compiled step."""

import warnings

import torch
import torch.distributed as dist
from claims_torch import check, close, equal
from raising import raises
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import horo.torch as hvd

ROWS, WIDTH, STEPS = 12, 8, 4
warnings.simplefilter("ignore")


def me():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def model(dtype=torch.float32):
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(WIDTH, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 3)).to(dtype)


def batches():
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64) for _ in range(STEPS)]


def mine(batch):
    """The rows of this rank."""
    rows = ROWS // size()
    return batch[me() * rows : (me() + 1) * rows].float()


def train(net, optimizer, inputs):
    for batch in inputs:
        optimizer.zero_grad()
        net(batch).pow(2).mean().backward()
        optimizer.step()


def sgd(params, **options):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9, **options)


def alone():
    """The parameters after the same steps in one process, in float64."""
    net = model(torch.float64)
    train(net, sgd(net.parameters()), batches())
    return dict(net.named_parameters())


def as_alone(named, bound=1e-5):
    for name, expected in alone().items():
        found = named[name]
        close(found.full_tensor() if hasattr(found, "full_tensor") else found, expected, bound)


def fsdp2():
    net = model()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(net)
    for op in (hvd.Average, hvd.Adasum):
        with raises(ValueError, "parameter 0.weight is a DTensor", "without DistributedOptimizer"):
            hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters(), op=op)
    train(net, sgd(net.parameters()), map(mine, batches()))
    as_alone(dict(net.named_parameters()))


def fsdp2_that_asks_the_group_for_memory():
    net = model()
    fully_shard(net)
    net.set_allocate_memory_from_process_group_for_comm(True)
    train(net, sgd(net.parameters()), map(mine, batches()))
    as_alone(dict(net.named_parameters()))


def a_group_cannot_shrink():
    with raises(TypeError, "does not support shrinking"):
        dist.shrink_group([size() - 1])


def fsdp1():
    net = FullyShardedDataParallel(model(), use_orig_params=True, device_id=torch.device("cpu"))
    train(net, sgd(net.parameters()), map(mine, batches()))
    with FullyShardedDataParallel.summon_full_params(net):
        as_alone({name.replace("_fsdp_wrapped_module.", ""): each for name, each in net.named_parameters()})


def dtensor():
    mesh = init_device_mesh("cpu", (size(),))
    whole = torch.arange(24.0).reshape(6, 4)
    for placement in (Shard(0), Shard(1), Replicate()):
        sharded = distribute_tensor(whole, mesh, [placement])
        equal(sharded.full_tensor(), whole)
        for target in (Replicate(), Shard(0), Shard(1)):
            equal(sharded.redistribute(mesh, [target]).full_tensor(), whole)
    left = distribute_tensor(whole, mesh, [Shard(1)])
    right = distribute_tensor(whole.T.contiguous(), mesh, [Shard(0)])
    product = left @ right
    assert isinstance(product.placements[0], Partial)
    close(product.full_tensor(), whole @ whole.T)
    close(product.redistribute(mesh, [Shard(0)]).full_tensor(), whole @ whole.T)


def tensor_parallel():
    mesh = init_device_mesh("cpu", (size(),))
    net = model()
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train(net, sgd(net.parameters(), foreach=False), [batch.float() for batch in batches()])
    as_alone(dict(net.named_parameters()))


def ddp_with_power_sgd():
    """Of full rank the approximation is exact up to rounding; several buckets, whose callbacks wait in the pool."""
    torch.manual_seed(0)
    net = DistributedDataParallel(model(), bucket_cap_mb=0.001)
    options = {"matrix_approximation_rank": 24, "start_powerSGD_iter": 2, "min_compression_rate": 0.01}
    state = powerSGD_hook.PowerSGDState(None, use_error_feedback=False, **options)
    net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(net, sgd(net.parameters()), map(mine, batches()))
    as_alone(dict(net.module.named_parameters()), 1e-3)


def zero_redundancy():
    net = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    train(net, optimizer, map(mine, batches()))
    as_alone(dict(net.module.named_parameters()))


def join_of_uneven_inputs():
    net = DistributedDataParallel(model())
    optimizer = sgd(net.parameters())
    with Join([net]):
        for batch in batches()[: 2 + me()]:
            optimizer.zero_grad()
            net(mine(batch)).pow(2).mean().backward()
            optimizer.step()
    gathered = [None] * size()
    dist.all_gather_object(gathered, [each.detach().clone() for each in net.module.parameters()])
    assert len(gathered) == size()


def compiled_step():
    net = DistributedDataParallel(model())
    compiled = torch.compile(net, backend="aot_eager")
    train(compiled, sgd(net.parameters()), map(mine, batches()))
    as_alone(dict(net.module.named_parameters()))


def functional_collectives_compile():
    from torch.distributed import _functional_collectives as functional

    def step(tensor):
        total = functional.all_reduce(tensor, "sum", dist.group.WORLD)
        return functional.all_gather_tensor(total + 1, 0, dist.group.WORLD)

    tensor = torch.full((2,), float(me()))
    expected = torch.full((2 * size(),), float(sum(range(size())) + 1))
    equal(step(tensor) + 0, expected)
    equal(torch.compile(step, backend="aot_eager", fullgraph=True)(tensor) + 0, expected)


check(
    fsdp2,
    fsdp2_that_asks_the_group_for_memory,
    a_group_cannot_shrink,
    fsdp1,
    dtensor,
    tensor_parallel,
    ddp_with_power_sgd,
    zero_redundancy,
    join_of_uneven_inputs,
    compiled_step,
    functional_collectives_compile,
)
