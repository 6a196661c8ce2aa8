"""Compression of gradients on the wire: in this version none."""

from horo.errors import not_yet


class Compressor:
    """What travels instead of a tensor, and the way back."""

    @staticmethod
    def compress(tensor):
        raise NotImplementedError

    @staticmethod
    def decompress(tensor, ctx):
        raise NotImplementedError


class NoneCompressor(Compressor):
    """The tensor itself travels."""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


class _NotYet:
    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"Compression.{self._name}"


class Compression:
    """Choices of the compression argument."""

    none = NoneCompressor
    fp16 = _NotYet("fp16")


def check(compression):
    if compression is not Compression.none:
        raise not_yet(f"compression={compression!r}; expected Compression.none")
