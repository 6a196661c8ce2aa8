"""`horo run --replace-gloo`: for scripts and tools that name the backend "gloo"."""

import functools
import importlib


def replace():
    """From now on a process group that is asked for as "gloo", or for which torch would choose it, is made by horo;
    get_backend() says what it would say without horo, because scripts ask. "cpu:gloo,cuda:nccl" stays as it is: torch
    mixes no group in Python with others."""
    c10d = importlib.import_module("torch.distributed.distributed_c10d")
    made_by_torch = c10d._new_process_group_helper

    @functools.wraps(made_by_torch)
    def made(group_size, group_rank, global_ranks, backend, *arguments, **options):
        if str(backend) not in ("gloo", "cpu:gloo") and not chooses_gloo(backend):
            return made_by_torch(group_size, group_rank, global_ranks, backend, *arguments, **options)
        group, store = made_by_torch(group_size, group_rank, global_ranks, c10d.Backend("horo"), *arguments, **options)
        if group in c10d._world.pg_map:
            told = backend if chooses_gloo(backend) else c10d.Backend("gloo")
            c10d._world.pg_map[group] = (told, c10d._world.pg_map[group][1])
        return group, store

    def chooses_gloo(backend):
        """Whether a script names no backend, and torch takes Gloo on this host."""
        return str(backend) == "undefined" and c10d.BackendConfig(backend).device_backend_map == {"cpu": "gloo"}

    c10d._new_process_group_helper = made
