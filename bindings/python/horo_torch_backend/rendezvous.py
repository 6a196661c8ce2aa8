"""init_process_group() without an init_method under `horo run`: the ranks find one another through horo, and rank 0
serves the store that torch.distributed needs. So MASTER_PORT need not be free, and an elastic job has its present
ranks."""

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
        if not _is_of_horo_run():
            return self._of_torch(url, **options)
        from horo.torch.distributed.meeting import meet_by_horo

        return meet_by_horo(options["timeout"])


def _is_of_horo_run():
    """Whether this process is a rank of `horo run`, and not of a launcher that such a rank has started."""
    if "HORO_RANK" not in os.environ or "TORCHELASTIC_RUN_ID" in os.environ:
        return False
    pairs = (("RANK", "HORO_RANK"), ("WORLD_SIZE", "HORO_SIZE"))
    return all(os.environ.get(name) in (None, os.environ.get(of_horo)) for name, of_horo in pairs)
