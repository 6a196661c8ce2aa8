"""What to write instead: for names that a module of horo does not have, and for values that are no tensors."""

import difflib
import sys

# Names of other libraries, without case and underscores, and horo's for the same thing.
_OTHER_NAMES = {
    "distributeddataparallel": "DistributedOptimizer",
    "ddp": "DistributedOptimizer",
    "distributedtrainer": "DistributedOptimizer",
    "distributedgradienttape": "DistributedOptimizer",
    "initprocessgroup": "init",
    "destroyprocessgroup": "shutdown",
    "finalize": "shutdown",
    "isavailable": "is_initialized",
    "getrank": "rank",
    "getworldsize": "size",
    "worldsize": "size",
    "nranks": "size",
    "localworldsize": "local_size",
    "newgroup": "add_process_set",
    "broadcastvariables": "broadcast_parameters",
    "broadcastglobalvariables": "broadcast_parameters",
    "broadcastobjectlist": "broadcast_object",
    "allgatherobject": "allgather_object",
    "gatherobject": "allgather_object",
    "allgatherintotensor": "allgather",
    "alltoallsingle": "alltoall",
    "reducescattertensor": "reducescatter",
    "isend": "send_async",
    "irecv": "recv_async",
    "wait": "synchronize",
    "avg": "Average",
    "mean": "Average",
    "reduceop": "Average, Sum, Min, Max, Product or Adasum",
}
_MODULES = ("torch", "numpy", "runner")
# Names of horo.torch, and their forms with other endings, that the package itself does not have.
_OF_TORCH = """
Adasum Average Max Min Product Sum DistributedOptimizer SyncBatchNorm Compression allgather allgather_async
allgather_object allreduce allreduce_ allreduce_async allreduce_async_ alltoall alltoall_async audit barrier broadcast
broadcast_ broadcast_async broadcast_async_ broadcast_object broadcast_optimizer_state broadcast_parameters elastic
gather grouped_allgather grouped_allreduce grouped_allreduce_ join lr_scale metric_average poll recv reduce
reducescatter scatter send synchronize Warmup
""".split()


def _plain(name):
    return name.replace("_", "").lower()


def attribute_error(module, name, known):
    """The AttributeError for a name that this module does not have. known: the names that it has."""
    text = f"module {module!r} has no attribute {name!r}"
    if name.startswith("__"):
        return AttributeError(text)
    plain = _plain(name)
    alike = {_plain(one): one for one in sorted(known, reverse=True) if not one.startswith("_")}  # the shorter one last
    found = alike.get(plain) or _OTHER_NAMES.get(plain)
    if found is None:
        close = difflib.get_close_matches(plain, alike, n=1, cutoff=0.8)
        found = alike[close[0]] if close else None
    return AttributeError(text if found is None else f"{text}; expected {found}")


def of_package(name, known):
    """The AttributeError of the package horo, which has no framework."""
    if name in _MODULES:
        return AttributeError(f"module 'horo' has no attribute {name!r}; it is a module of its own: import horo.{name}")
    plain = _plain(name)
    if plain in map(_plain, _OF_TORCH):
        return AttributeError(
            f"module 'horo' has no attribute {name!r}: horo.torch has the calls for PyTorch, and horo.numpy those for "
            "arrays: import horo.torch as horo"
        )
    return attribute_error("horo", name, known)


def _kind(value):
    return f"{type(value).__module__}.{type(value).__name__}"


def instead_of(value):
    """What a caller passes in place of this value, where a tensor is expected; begins with "; ", or is empty."""
    torch, kind = sys.modules.get("torch"), _kind(value)
    if isinstance(value, (bool, int, float, complex)):
        return "; torch.tensor(value) makes one, and horo.torch.metric_average is for numbers"
    if torch is not None and isinstance(value, torch.nn.Module):
        return "; broadcast_parameters() and DistributedOptimizer are for models"
    if isinstance(value, (list, tuple)):
        of_tensors = torch is not None and value and all(isinstance(one, torch.Tensor) for one in value)
        return "; the grouped_ forms take several tensors" if of_tensors else "; torch.tensor(values) makes one"
    if isinstance(value, dict) or value is None or isinstance(value, str):
        return "; broadcast_object() and allgather_object() are for other objects"
    if kind == "numpy.ndarray":
        return "; horo.numpy has this call for arrays, and torch.from_numpy(array) makes a tensor"
    if hasattr(value, "__dlpack__"):
        return "; horo.numpy takes it by DLPack, and torch.from_dlpack(array) makes a tensor"
    return ""
