"""The place of Horovod's elastic jobs, which this version has not: whatever is asked of it says so."""

from horo.errors import not_yet


def __getattr__(name):
    if name.startswith("__"):  # what the interpreter asks of every module
        raise AttributeError(name)
    raise not_yet(f"horo.torch.elastic.{name}; a lost rank ends the job (horo.PeerLost): begin again at a checkpoint")
