"""init_process_group() without an init_method under `horo run`: the ranks find one another through horo, and rank 0
serves the store that torch.distributed needs. So MASTER_PORT need not be free, and an elastic job has its present
ranks. Under mpirun, mpiexec and srun the same holds where torch's own variables are not set. A group of other processes
(init_process_group() with another rank or world_size, or in a worker of multiprocessing) meets as torch has it, at
MASTER_ADDR and MASTER_PORT."""

import importlib
import os
import sys
import urllib.parse

from horo_torch_backend import RANK_OF


def replace_env_method():
    """init_method="env://", the default, works under horo run too."""
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    handlers["env"] = _EnvMethod(handlers["env"])


class _EnvMethod:
    def __init__(self, of_torch):
        self._of_torch = of_torch

    def __call__(self, url, **options):
        given = dict(urllib.parse.parse_qsl(urllib.parse.urlparse(url).query))
        if not (_is_rank(given) and _is_of_world(given)):
            return self._of_torch(url, **options)
        from horo.torch.distributed.store import meet_by_horo

        return meet_by_horo(options["timeout"])


def _is_rank(given):
    """Whether this process is a rank that horo can place, and not of a launcher or a worker that such a rank has
    started."""
    workers = sys.modules.get("multiprocessing.process")
    if "TORCHELASTIC_RUN_ID" in os.environ or (workers is not None and workers.parent_process() is not None):
        return False
    if "HORO_RANK" not in os.environ:
        return _needs_more(given)
    pairs = (("RANK", "HORO_RANK"), ("WORLD_SIZE", "HORO_SIZE"))
    return all(os.environ.get(name) in (None, os.environ.get(of_horo)) for name, of_horo in pairs)


def _needs_more(given):
    """Whether torch's own way would fail for want of variables."""
    places = ("RANK" in os.environ or "rank" in given, "WORLD_SIZE" in os.environ or "world_size" in given)
    return not all((*places, "MASTER_ADDR" in os.environ, "MASTER_PORT" in os.environ))


def _is_of_world(given):
    """Whether the rank and size that a script has given to init_process_group(), if any, are those of the job."""
    rank = next(name for name in RANK_OF if name in os.environ)
    size = next((os.environ[name] for name in RANK_OF[rank] if name in os.environ), None)
    places = [{"rank": os.environ[rank], "world_size": size}]
    default = sys.modules.get("horo._default")
    if default is not None and default.current() is not None:  # in an elastic job they change
        now = default.current().topology
        places.append({"rank": str(now.rank), "world_size": str(now.size)})
    return any(all(given.get(name, place[name]) == place[name] for name in place) for place in places)
