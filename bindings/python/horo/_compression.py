"""Compression of the data of an all_reduce.

The engine's codecs encode on the wire: values are encoded for sending and summed in float32, and every rank decodes the
same bytes. A user's compressor, a class with compress and decompress as in Horovod, converts the tensor before the
collective and the result after it.
"""

from horo import _specs


class Compressor:
    """Base class of compressors: converts a tensor before a collective, and the result after it."""

    @staticmethod
    def compress(tensor):
        """The tensor to send, and a context for decompress."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor, ctx):
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends the tensor unchanged."""

    codec = ""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


class Codec:
    """A codec of the engine, or of register_codec, by name."""

    def __init__(self, name):
        self.codec = name

    def __repr__(self):
        return f"Compression.{self.codec}"


class Compression:
    """Values of the compression argument; Codec(name) is also accepted."""

    none = NoneCompressor
    fp16 = Codec("fp16")
    bf16 = Codec("bf16")
    fp8 = Codec("fp8")
    int8 = Codec("int8")


def codec_of(compression):
    """The codec's name, "" for none; None for a user's compressor, which a subclass of a built-in one is too."""
    codec = getattr(compression, "__dict__", {}).get("codec")
    if codec is None and not (hasattr(compression, "compress") and hasattr(compression, "decompress")):
        raise ValueError(
            f"compression={compression!r}; expected one of Compression.none, fp16, bf16, fp8, int8, or a class with "
            "compress and decompress"
        )
    return codec


def codec_for(compression, dtype):
    """codec_of() for tensors of this dtype: only floating-point numbers are encoded."""
    codec = codec_of(compression)
    return codec if dtype in _specs.CODED else codec and ""


def wire_codec(compression, dtype):
    """codec_for() of calls that accept codecs only; raises ValueError for a user's compressor."""
    codec = codec_for(compression, dtype)
    if codec is None:
        raise ValueError(
            f"compression={compression!r}: an *_async call accepts codecs only; compress the tensor before it, or use "
            "allreduce or DistributedOptimizer"
        )
    return codec or None


def _around(compression, tensors, start):
    """start(compressed tensors), decompressed."""
    compressed = [compression.compress(tensor) for tensor in tensors]
    results = start([tensor for tensor, _ in compressed])
    return [compression.decompress(result, ctx) for result, (_, ctx) in zip(results, compressed)]


def all_through(compression, tensors, start, op=_specs.Average):
    """start(tensors, compression) of several tensors. A user's compressor is applied before and after it; so is a cast
    where codecs do not apply, in operations other than the sum and average."""
    is_cast = op not in (_specs.Average, _specs.Sum) and hasattr(compression, "compress")
    if codec_of(compression) is not None and not is_cast:
        return start(tensors, compression)
    return _around(compression, tensors, lambda compressed: start(compressed, NoneCompressor))


def through(compression, tensor, start, op=_specs.Average):
    """all_through() of one tensor."""
    (result,) = all_through(compression, [tensor], lambda tensors, chosen: [start(tensors[0], chosen)], op)
    return result


def all_converted(compression, tensors, call, start):
    """start(tensors) of a collective that takes no codecs: the compressor converts tensors before it, results after."""
    if not hasattr(compression, "compress"):
        raise ValueError(f"horo.{call}: compression={compression!r} is for allreduce; expected Compression.none")
    return _around(compression, tensors, start)


def converted(compression, tensor, call, start):
    """all_converted() of one tensor."""
    (result,) = all_converted(compression, [tensor], call, lambda tensors: [start(tensors[0])])
    return result
