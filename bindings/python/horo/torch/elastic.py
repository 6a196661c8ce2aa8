"""The place of Horovod's elastic module: it has no attributes yet, so hasattr() is False, and a use says why."""


def __getattr__(name):
    raise AttributeError(
        f"not yet: horo.torch.elastic.{name}; under horo run --min-np a script goes on when a rank is lost, without "
        "any call for it (docs/elastic.md)"
    )
