"""The entry point of group torch.backends, which `import torch` calls: it makes the name "horo" known to
torch.distributed. It loads no library and never raises; horo itself is imported when a group is made."""

import os

RANK_OF = {  # the rank and the size that horo.init() takes from a launcher's variables
    "HORO_RANK": ("HORO_SIZE",),
    "OMPI_COMM_WORLD_RANK": ("OMPI_COMM_WORLD_SIZE",),
    "PMI_RANK": ("PMI_SIZE",),
    "SLURM_PROCID": ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
}


def register():
    """Makes init_process_group("horo") work without an import. HORO_TORCH_DEFAULT=1: horo is the backend of CPU tensors
    where a script names none. HORO_REPLACE_GLOO=1: a script that names "gloo" gets horo."""
    try:
        from torch.distributed import Backend, is_available

        if not is_available() or hasattr(Backend, "HORO"):
            return
        Backend.register_backend("horo", _create, extended_api=True, devices=["cpu", "cuda"])
        if os.environ.get("HORO_TORCH_DEFAULT") == "1":
            Backend.default_device_backend_map["cpu"] = "horo"
        if any(name in os.environ for name in RANK_OF):
            from horo_torch_backend.rendezvous import replace_env_method

            replace_env_method()
        if os.environ.get("HORO_REPLACE_GLOO") == "1":
            from horo_torch_backend.replace_gloo import replace

            replace()
    except Exception as error:  # an exception here would end `import torch`
        import warnings

        warnings.warn(f"the backend horo of torch.distributed is not available: {error}", stacklevel=2)


def _create(options, backend_options):
    from horo.torch.distributed import create_group

    return create_group(options, backend_options)
