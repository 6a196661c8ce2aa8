"""Redirects `import horo` in the repository root, where the folder horo/ is C++, to the installed package.

Without this file Python would import that folder as an empty package.
"""

import importlib.util
import os
import sys


def _find_installed():
    here = os.path.dirname(os.path.realpath(__file__))
    path = sys.path[:]
    sys.path[:] = [entry for entry in path if os.path.realpath(entry or os.getcwd()) != here]
    try:
        for finder in sys.meta_path:
            spec = finder.find_spec("horo", None)
            if spec is not None and spec.origin is not None:
                return spec
    finally:
        sys.path[:] = path
    raise ImportError(
        "horo is not installed. This is its repository, and its folder horo/ is C++: "
        "run tools/setup once and 'pip install .', or ./tools/demo, which does both"
    )


_spec = _find_installed()
_module = importlib.util.module_from_spec(_spec)
sys.modules[__name__] = _module
_spec.loader.exec_module(_module)
