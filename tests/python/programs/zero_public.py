"""zero_bits.py with a horo whose private modules have other names."""

import importlib.util
import pathlib
import runpy

import horo.zero  # noqa: F401

assert importlib.util.find_spec("horo._default") is None
runpy.run_path(str(pathlib.Path(__file__).with_name("zero_bits.py")), run_name="__main__")
