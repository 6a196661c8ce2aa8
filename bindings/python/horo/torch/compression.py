"""Compression for torch. In reducescatter, and in allreduce with an operation other than Sum and Average, which have no
codecs, fp16 and bf16 convert the tensors instead."""

import torch

from horo import _compression
from horo._compression import Codec, Compressor, NoneCompressor  # noqa: F401


class _Cast(Compressor):
    """Converts floating-point tensors to another dtype for sending."""

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
    """Values of the compression argument; Codec(name) and a user's Compressor are also accepted."""

    fp16 = FP16Compressor
    bf16 = BF16Compressor
