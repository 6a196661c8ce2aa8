"""Horovod's modules that no framework is part of."""
