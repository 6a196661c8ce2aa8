"""See horo.torch.elastic; torch is imported at the first use."""


def __getattr__(name):
    if name.startswith("__"):  # the import system asks for __path__ and the like
        raise AttributeError(name)
    from horo.torch import elastic

    return getattr(elastic, name)
