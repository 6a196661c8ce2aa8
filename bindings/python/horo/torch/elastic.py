"""A stub of Horovod's elastic module: every attribute raises NotImplementedError."""

from horo.errors import not_yet


def __getattr__(name):
    if name.startswith("__"):  # attributes that the interpreter reads of every module
        raise AttributeError(name)
    raise not_yet(f"horo.torch.elastic.{name}; a lost rank ends the job (horo.PeerLost): restart from a checkpoint")
