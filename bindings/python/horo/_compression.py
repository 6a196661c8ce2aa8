"""Compression: what travels instead of the values of an all_reduce.

The engine's codecs work on the wire: values are coded on their way and summed in float32, and every rank decodes the
same bytes. A compressor of one's own, a class with compress and decompress as in Horovod, changes the tensor before
the collective and its result after it.
"""

from horo import _specs


class Compressor:
    """What travels instead of a tensor, and the way back."""

    @staticmethod
    def compress(tensor):
        """What is to travel, and anything that decompress needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor, ctx):
        raise NotImplementedError


class NoneCompressor(Compressor):
    """The tensor itself travels."""

    codec = ""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


class Codec:
    """A codec of the engine, or one that register_codec added, by its name."""

    def __init__(self, name):
        self.codec = name

    def __repr__(self):
        return f"Compression.{self.codec}"


class Compression:
    """Choices of the compression argument; Codec(name) is another."""

    none = NoneCompressor
    fp16 = Codec("fp16")
    bf16 = Codec("bf16")
    fp8 = Codec("fp8")
    int8 = Codec("int8")


def codec_of(compression):
    """The codec's name, "" for none; None for a compressor of the user's. A subclass of a built-in one is the user's."""
    codec = getattr(compression, "__dict__", {}).get("codec")
    if codec is None and not (hasattr(compression, "compress") and hasattr(compression, "decompress")):
        raise ValueError(
            f"compression={compression!r}; expected one of Compression.none, fp16, bf16, fp8, int8, or a class with "
            "compress and decompress"
        )
    return codec


def codec_for(compression, dtype):
    """codec_of for tensors of this dtype: numbers that are not floating point travel as they are."""
    codec = codec_of(compression)
    return codec if dtype in _specs.CODED else codec and ""


def wire_codec(compression, dtype):
    """codec_for, for calls in which a compressor of the user's has no place."""
    codec = codec_for(compression, dtype)
    if codec is None:
        raise ValueError(
            f"compression={compression!r}: an *_async call takes codecs alone; compress the tensor before it, or use "
            "allreduce or DistributedOptimizer"
        )
    return codec or None


def through(compression, tensor, start):
    """start(tensor, compression), with the user's compressor before and after it, if it is one."""
    if codec_of(compression) is not None:
        return start(tensor, compression)
    small, ctx = compression.compress(tensor)
    return compression.decompress(start(small, NoneCompressor), ctx)


def all_through(compression, tensors, start):
    """through() for several tensors that start together."""
    if codec_of(compression) is not None:
        return start(tensors, compression)
    small = [compression.compress(tensor) for tensor in tensors]
    results = start([tensor for tensor, _ in small], NoneCompressor)
    return [compression.decompress(result, ctx) for result, (_, ctx) in zip(results, small)]
