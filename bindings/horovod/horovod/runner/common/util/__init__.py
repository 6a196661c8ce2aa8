"""Helpers of Horovod's launcher that other programs import: hosts, secret and timeout."""
