# ruff: noqa: F401
"""Process sets."""

from horo import ProcessSet, add_process_set, global_process_set, remove_process_set
from horo._sets import process_set_by_id, process_sets
