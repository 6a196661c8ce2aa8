"""init_process_group() without an init_method under `horo run`, which sets none of torchrun's variables: the ranks find
one another through horo, and rank 0 serves the store that torch.distributed needs."""

import importlib
import os


def replace_env_method():
    """init_method="env://", the default, works under horo run too."""
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    handlers["env"] = _EnvMethod(handlers["env"])


class _EnvMethod:
    def __init__(self, of_torch):
        self._of_torch = of_torch

    def __call__(self, url, **options):
        if "RANK" in os.environ or "HORO_RANK" not in os.environ:
            return self._of_torch(url, **options)
        from horo.torch.distributed.meeting import meet_by_horo

        return meet_by_horo(options["timeout"])
