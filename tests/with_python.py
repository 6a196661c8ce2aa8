"""Runs a tool that starts processes with another interpreter: `python with_python.py PYTHON tool arguments`. PYTHON is
a stand-in of fork_server.py, which forks the ranks that import torch."""

import os
import runpy
import sys

sys.executable, *sys.argv[:] = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
