"""See horo.torch.elastic."""

from horo.torch import elastic


def __getattr__(name):
    return getattr(elastic, name)
