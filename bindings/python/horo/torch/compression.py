"""Compression for torch. Where no codec works, in reducescatter, fp16 and bf16 convert the tensors instead."""

import torch

from horo import _compression
from horo._compression import Codec, Compressor, NoneCompressor  # noqa: F401


class _Cast(Compressor):
    """Floating point travels in another dtype."""

    dtype = None

    @classmethod
    def compress(cls, tensor):
        return (tensor.to(cls.dtype), tensor.dtype) if tensor.dtype.is_floating_point else (tensor, None)

    @classmethod
    def decompress(cls, tensor, ctx):
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_Cast):
    """float16 on the wire."""

    codec = "fp16"
    dtype = torch.float16


class BF16Compressor(_Cast):
    """bfloat16 on the wire."""

    codec = "bf16"
    dtype = torch.bfloat16


class Compression(_compression.Compression):
    """Choices of the compression argument; Codec(name) is another, and so is a Compressor of one's own."""

    fp16 = FP16Compressor
    bf16 = BF16Compressor
