# ruff: noqa: F401
"""Compression of gradients."""

from horo.torch.compression import Compression, Compressor, FP16Compressor, NoneCompressor
