"""Runs a script whose tensors are on the fake device: `python on_fake_device.py script.py arguments`."""

import os
import runpy
import sys

import fake_devices

fake_devices.install()
sys.argv[:] = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
