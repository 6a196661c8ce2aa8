"""`horo run --replace-gloo`: for scripts and tools that name the backend "gloo"."""

import functools
import importlib


def replace():
    """From now on a process group that is asked for as "gloo" is made by horo. "cpu:gloo,cuda:nccl" stays as it is,
    because torch mixes no group in Python with others."""
    c10d = importlib.import_module("torch.distributed.distributed_c10d")
    made_by_torch = c10d._new_process_group_helper

    @functools.wraps(made_by_torch)
    def made(group_size, group_rank, global_ranks, backend, *arguments, **options):
        chosen = "horo" if str(backend) in ("gloo", "cpu:gloo") else backend
        return made_by_torch(group_size, group_rank, global_ranks, chosen, *arguments, **options)

    c10d._new_process_group_helper = made
