"""The place of Horovod's elastic module: it has no attributes yet, so hasattr() is False, and a use says why."""


def __getattr__(name):
    raise AttributeError(
        f"not yet: horo.torch.elastic.{name}; a lost rank ends the job (horo.PeerLost): restart from a checkpoint"
    )
