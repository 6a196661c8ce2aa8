"""Horovod's elastic API without a framework, by horo.torch.elastic; torch is imported at the first use."""

NAMES = ("ObjectState", "State", "run_fn")


def __getattr__(name):
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(NAMES)}")
    from horo.torch import elastic

    return getattr(elastic, name)
