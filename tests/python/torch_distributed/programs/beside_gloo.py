"""Groups of horo beside a default group of Gloo, on three ranks."""

import os

import torch
import torch.distributed as dist
from claims_torch import check, equal
from torch.nn.parallel import DistributedDataParallel


def total(group, tensor):
    dist.all_reduce(tensor, group=group)
    return tensor


def all_ranks_make_a_group():
    group = dist.new_group(backend="horo")
    assert dist.get_backend(group) == "horo" and dist.get_backend() == "gloo"
    equal(total(group, torch.ones(3)), torch.full((3,), 3.0))
    net = torch.nn.Linear(2, 2)
    model = DistributedDataParallel(net, process_group=group)
    model(torch.ones(1, 2) * dist.get_rank()).sum().backward()
    equal(net.weight.grad, torch.full((2, 2), 1.0))
    objects = [None] * 3
    dist.all_gather_object(objects, {"rank": dist.get_rank()}, group=group)
    assert objects == [{"rank": rank} for rank in range(3)]
    dist.destroy_process_group(group)


def some_ranks_make_a_group_and_a_group_of_it():
    group = dist.new_group([0, 2], backend="horo")
    if dist.get_rank() in (0, 2):
        assert dist.get_rank(group) == dist.get_rank() // 2
        equal(total(group, torch.tensor([dist.get_rank()])), torch.tensor([2]))
        part = group.split_group([0, 1], group_name="part")
        part.barrier().wait()
        part.shutdown()
    alone = dist.new_group([1], backend="horo")
    if dist.get_rank() == 1:
        equal(total(alone, torch.ones(1)), torch.ones(1))
    for group in (group, alone):
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)
    dist.barrier()


def a_second_group_works_beside_the_first_and_gloo():
    groups = [dist.new_group(backend=name) for name in ("horo", "gloo", "horo")]
    works = [dist.all_reduce(torch.ones(1), group=group, async_op=True) for group in groups]
    for work in works:
        work.wait()
    assert groups[0].session is groups[2].session
    dist.destroy_process_group(groups[0])
    equal(total(groups[2], torch.ones(3)), torch.full((3,), 3.0))
    dist.destroy_process_group(groups[2])


def groups_of_some_of_the_ranks_run_at_once():
    """Two that no session has together: at most one of them has NCCL, or their orders could differ."""
    os.environ["HORO_GPU_BACKEND"] = "auto"
    everything = [dist.new_group(ranks, backend="horo") for ranks in ([0, 1], [1, 2], [2, 0], [0, 1])]
    mine = [group for group in everything if group is not dist.GroupMember.NON_GROUP_MEMBER]
    for step in range(20):
        order = mine if dist.get_rank() != 1 else mine[::-1]
        tensors = [torch.full((1000,), float(step)) for _ in order]
        for work in [dist.all_reduce(one, group=group, async_op=True) for one, group in zip(tensors, order)]:
            work.wait()
        for one in tensors:
            equal(one, torch.full((1000,), 2.0 * step))
    assert len({id(group.session) for group in mine}) == 2
    for group in mine:
        dist.destroy_process_group(group)


check(
    all_ranks_make_a_group,
    some_ranks_make_a_group_and_a_group_of_it,
    a_second_group_works_beside_the_first_and_gloo,
    groups_of_some_of_the_ranks_run_at_once,
    backend="gloo",
)
