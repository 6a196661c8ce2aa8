"""Groups of some ranks, which their members make alone, on four ranks: overlapping groups, meshes, HSDP. What a group
held is given back."""

import gc
import os
import threading
import time

import torch
import torch.distributed as dist
from claims_torch import check, close, equal, raises
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

GROUPS = int(os.environ.get("GROUPS", "50"))
ALIVE = int(os.environ.get("ALIVE", "200"))


def me():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def total_in(group):
    tensor = torch.full((2,), float(me()))
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def groups_overlap_and_do_not_wait_for_one_another():
    pairs = [[0, 1], [1, 2], [2, 3], [0, 3]]
    groups = [dist.new_group(pair) for pair in pairs]
    for pair, group in reversed(list(zip(pairs, groups))):
        if me() in pair:
            assert total_in(group) == sum(pair)
            assert dist.get_rank(group) == pair.index(me())
    for pair, group in zip(pairs, groups):
        if me() in pair:
            dist.destroy_process_group(group)


def members_alone_make_a_group():
    if me() in (1, 3):
        group = dist.new_group([1, 3], use_local_synchronization=True)
        tensor = torch.tensor([7.0 if me() == 1 else 0.0])
        dist.broadcast(tensor, 1, group=group)
        equal(tensor, torch.tensor([7.0]))
        again = dist.new_group([1, 3], use_local_synchronization=True)  # of the same ranks
        assert total_in(again) == total_in(group) == 4
    if me() == 2:
        alone = dist.new_group([2], use_local_synchronization=True)
        assert total_in(alone) == 2
    everyone = dist.new_group()
    assert total_in(everyone) == 6
    part = dist.group.WORLD.split_group([0, 2], group_name="part") if me() in (0, 2) else None
    if part is not None:
        tensor = torch.ones(1)
        part.allreduce([tensor]).wait()
        equal(tensor, torch.tensor([2.0]))
        part.shutdown()
    dist.barrier()


def each_rank_makes_a_group_of_itself():
    group = dist.new_group([me()])
    assert dist.get_world_size(group) == 1 and total_in(group) == me()
    dist.destroy_process_group(group)


def hsdp_trains_as_one_process():
    def model(dtype=torch.float32):
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).to(dtype)

    def train(net, inputs):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for batch in inputs:
            optimizer.zero_grad()
            net(batch).pow(2).mean().backward()
            optimizer.step()

    batches = [torch.randn(8, 8) for _ in range(4)]
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    net = model()
    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
    train(net, [batch[2 * me() : 2 * me() + 2] for batch in batches])
    alone = model(torch.float64)
    train(alone, [batch.double() for batch in batches])
    for found, expected in zip(net.parameters(), alone.parameters()):
        close(found.full_tensor(), expected)


def held():
    """Threads of Python and of the system, descriptors, and mappings."""
    gc.collect()
    threads = len(os.listdir("/proc/self/task"))
    with open("/proc/self/maps") as maps:
        return threading.active_count(), threads, len(os.listdir("/proc/self/fd")), len(maps.readlines())


def groups_leave_nothing_behind():
    def make(count):
        for number in range(count):
            group = dist.new_group([0, 1 + number % (size() - 1)])
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                total_in(group)
                dist.destroy_process_group(group)
        dist.barrier()

    make(10)
    time.sleep(0.5)
    before = held()
    make(GROUPS)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(now > then for now, then in zip(held()[:3], before)):
        time.sleep(0.1)
    after = held()
    assert all(now <= then for now, then in zip(after[:3], before)), f"{after} after {before}"
    assert after[3] <= before[3] + 20, f"{after} mappings after {before}"


def many_groups_are_alive_at_once():
    groups = [dist.new_group([0, 1 + number % (size() - 1)]) for number in range(ALIVE)]
    for number in range(0, ALIVE, 20):
        other = 1 + number % (size() - 1)
        if me() in (0, other):
            assert total_in(groups[number]) == other
    for group in groups:
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)
    dist.barrier()


def ranks_out_of_order_are_refused():
    with raises(ValueError, "ascending"):
        from horo.torch.distributed.creation import subgroup

        subgroup(dist.group.WORLD.session, [3, 1], 0, "out of order", 1)


check(
    groups_overlap_and_do_not_wait_for_one_another,
    members_alone_make_a_group,
    each_rank_makes_a_group_of_itself,
    hsdp_trains_as_one_process,
    groups_leave_nothing_behind,
    many_groups_are_alive_at_once,
    ranks_out_of_order_are_refused,
)
