"""More of what is built on torch.distributed, against one process in float64: pipeline schedules, DDP's options, Join
of uneven inputs, FSDP2 with codecs and without named messages, inductor, callbacks that are attached late."""

import os
import sys
import time
import warnings

import torch
import torch.distributed as dist
from claims_torch import DEADLINE, check, close, equal, raises
from torch import nn
from torch.distributed import pipelining
from torch.distributed.algorithms.join import Join
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import horo
from horo.torch import Compression
from horo.torch.distributed.codecs import AllGather, ReduceScatter

WIDTH, ROWS, LAYERS = 8, 16, 4
warnings.simplefilter("ignore")


def me():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def layers(dtype=torch.float32):
    torch.manual_seed(5)
    return nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)).to(dtype)


def batch(seed=3):
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mine(rows):
    count = len(rows) // size()
    return rows[me() * count : (me() + 1) * count].float()


def loss_of(output, target):
    return (output - target).pow(2).mean()


def same_gradients(found, expected, bound=1e-5):
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        gradient = one.grad.full_tensor() if hasattr(one.grad, "full_tensor") else one.grad
        close(gradient, other.grad, bound)


def backward_alone(net, rows):
    """Gradients of the mean loss, in one process."""
    output = rows
    for layer in net:
        output = layer(output)
    loss_of(output, rows.roll(1, 0)).backward()
    return net


def pipelines():
    rows, chunks = batch().float(), 4
    alone = backward_alone(layers(torch.float64), batch())
    for kind in (pipelining.ScheduleGPipe, pipelining.Schedule1F1B, pipelining.ScheduleInterleaved1F1B):
        is_multi = kind is pipelining.ScheduleInterleaved1F1B
        net, stages = layers(), LAYERS if is_multi else size()
        depth = LAYERS // stages
        places = [stage for stage in range(stages) if stage % size() == me()]
        parts = {place: nn.Sequential(*net[place * depth : (place + 1) * depth]) for place in places}
        built = [pipelining.PipelineStage(parts[at], at, stages, torch.device("cpu")) for at in places]
        schedule = kind(built if is_multi else built[0], chunks, loss_fn=loss_of)
        losses = []
        given = (rows,) if 0 in places else ()
        target = {"target": rows.roll(1, 0), "losses": losses} if stages - 1 in places else {}
        schedule.step(*given, **target)
        assert len(losses) == (chunks if target else 0)
        for place, part in parts.items():
            same_gradients(part, nn.Sequential(*alone[place * depth : (place + 1) * depth]))


class Branches(nn.Module):
    """Uses one branch of two."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.branches = nn.ModuleList(nn.Linear(WIDTH, 3) for _ in range(3))

    def forward(self, rows, branch):
        return self.branches[branch](rows) + self.branches[0](rows)


def ddp_finds_unused_parameters():
    net, alone = DistributedDataParallel(Branches(), find_unused_parameters=True), Branches().double()
    halves = batch().chunk(size())
    for step in range(2):  # the ranks use different branches in the second step
        net.zero_grad(), alone.zero_grad()
        net(mine(batch()), 1 + (me() * step) % 2).pow(2).mean().backward()
        sum(alone(half, 1 + (rank * step) % 2).pow(2).mean() for rank, half in enumerate(halves)).backward()
        for found, expected in zip(net.parameters(), alone.parameters()):
            if expected.grad is not None:
                close(found.grad, expected.grad / size())


def ddp_has_a_static_graph():
    net, alone = DistributedDataParallel(Branches(), static_graph=True), Branches().double()
    for step in range(3):
        net.zero_grad(), alone.zero_grad()
        net(mine(batch(step)), 2).pow(2).mean().backward()
        alone(batch(step), 2).pow(2).mean().backward()
        for branch in (0, 2):
            same_gradients(net.module.branches[branch], alone.branches[branch])


def gradients_accumulate_without_synchronization():
    net, alone = DistributedDataParallel(nn.Sequential(*layers())), nn.Sequential(*layers(torch.float64))
    before = horo.counters()["submitted"]
    with net.no_sync():
        for step in range(3):
            net(mine(batch(step))).pow(2).mean().backward()
    assert horo.counters()["submitted"] == before
    net(mine(batch(3))).pow(2).mean().backward()
    for step in range(4):
        alone(batch(step)).pow(2).mean().backward()
    same_gradients(net.module, alone)


def join_ends_with_the_gradients_of_one_process():
    """Rank r has 2 + r batches. Those that have ended contribute zeros, and the average divides by all ranks."""
    net, alone = DistributedDataParallel(nn.Sequential(*layers())), nn.Sequential(*layers(torch.float64))
    sgds = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (net, alone)]
    with Join([net], divide_by_initial_world_size=True):
        for step in range(2 + me()):
            sgds[0].zero_grad()
            net(batch(step).chunk(size())[me()].float()).pow(2).mean().backward()
            sgds[0].step()
    for step in range(1 + size()):
        sgds[1].zero_grad()
        left = [part for rank, part in enumerate(batch(step).chunk(size())) if step < 2 + rank]
        (sum(alone(part).pow(2).mean() for part in left) / size()).backward()
        sgds[1].step()
    for found, expected in zip(net.module.parameters(), alone.parameters()):
        close(found, expected)  # Join broadcasts the parameters of the last rank


def sharded(codecs=()):
    net = nn.Sequential(*layers())
    for module in (*net, net):
        fully_shard(module)
        if codecs:
            module.set_custom_all_gather(AllGather(codecs[0]))
            module.set_custom_reduce_scatter(ReduceScatter(codecs[1]))
    return net


def fsdp2_costs_no_named_message():
    net = sharded()

    def named():
        net(mine(batch())).pow(2).mean().backward()
        return horo.counters()["control"]["messages_with_names"]

    counts = [named() for _ in range(12)]
    assert counts[-1] == counts[5], counts


def payload(kind):
    return sum(each["payload_bytes"] for each in horo.counters()["collectives"] if each["kind"] == kind)


def fsdp2_with_codecs():
    alone = nn.Sequential(*layers(torch.float64))
    alone(batch()).pow(2).mean().backward()
    kinds, moved = ("all_gather", "reduce_scatter", "all_to_all"), []
    for codecs, bound in (((), 1e-5), ((Compression.bf16, "fp16"), 0.05), ((Compression.fp16,) * 2, 0.005)):
        net, before = sharded(codecs), [payload(kind) for kind in kinds]
        net(mine(batch())).pow(2).mean().backward()
        moved.append([payload(kind) - then for kind, then in zip(kinds, before)])
        same_gradients(net, alone, bound)
    gathered, scattered, _ = moved[0]
    for coded in moved[1:]:  # all_to_all counts what a rank sends, reduce_scatter what it gets
        assert coded == [gathered // 2, 0, size() * scattered // 2], moved
    with raises(ValueError, "AllGather", "fp16"):
        AllGather("int8")


def inductor():
    """Without arithmetic of its own, for which inductor would start a C++ compiler."""
    from torch.distributed import _functional_collectives as functional

    def step(tensor):
        total = functional.all_reduce(tensor, "sum", dist.group.WORLD)
        gathered = functional.all_gather_tensor(total, 0, dist.group.WORLD)
        return functional.reduce_scatter_tensor(gathered, "sum", 0, dist.group.WORLD)

    tensor = torch.full((2,), float(me() + 1))
    expected = torch.full((2,), size() * size() * (size() + 1.0) / 2)
    equal(torch.compile(step, backend="inductor", fullgraph=True)(tensor) + 0, expected)
    out = torch.zeros(2 * size())
    name = dist.group.WORLD.group_name
    found = torch.ops._c10d_functional.all_gather_into_tensor_out(tensor, size(), name, out=out)
    equal(torch.ops._c10d_functional.wait_tensor(found), torch.arange(1.0, size() + 1).repeat_interleave(2))


def late_callbacks_have_names_of_their_own():
    """On one rank the callbacks run in the program's thread, on the others in that which completes the future; what
    they start has the size of what the program starts meanwhile."""
    for turn in range(3):
        future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
        if (me() + turn) % 2:
            future.wait(), time.sleep(0.05)
        found = []

        def again(done, turn=turn, found=found):
            for number in range(2):
                tensor = torch.full((2,), 100.0 + turn + number)
                found.append((dist.all_reduce(tensor, async_op=True), tensor))

        chained = future.then(again).then(lambda done: again(done))
        meanwhile = [torch.full((2,), float(number)) for number in range(3)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in meanwhile]
        chained.wait()
        for work in [*works, *(work for work, _ in found)]:
            work.wait()
        for number, tensor in enumerate(meanwhile):
            equal(tensor, torch.full((2,), float(number * size())))
        for number, (_, tensor) in enumerate(found):
            equal(tensor, torch.full((2,), (100.0 + turn + number % 2) * size()))


def an_error_says_which_call():
    for _ in range(10):
        dist.all_reduce(torch.zeros(11))
    own = ("maximum", "sum")[me() == 0]
    text = f"call {10 if me() == 0 else 0} of (all_reduce, 11 float32, {own}) in process group '0'"
    with raises(horo.Mismatch, text, "rank 1"):
        dist.all_reduce(torch.zeros(11), op=dist.ReduceOp.SUM if me() == 0 else dist.ReduceOp.MAX)
    dist.barrier()


check(
    pipelines,
    ddp_finds_unused_parameters,
    ddp_has_a_static_graph,
    gradients_accumulate_without_synchronization,
    join_ends_with_the_gradients_of_one_process,
    fsdp2_costs_no_named_message,
    fsdp2_with_codecs,
    inductor,
    late_callbacks_have_names_of_their_own,
    an_error_says_which_call,
)

# With the address of the first group's store a rank may reach that one, which rank 0 is about to close.
second = {"init_method": f"file://{sys.argv[1]}", "rank": int(os.environ["RANK"]), "world_size": 2}
dist.init_process_group("horo", timeout=DEADLINE, **second)
dist.barrier()
if me() == 0:
    dist.group.WORLD.abort()
with raises(horo.PeerLost, "process group", "abort() was called"):
    dist.all_reduce(torch.ones(3))
