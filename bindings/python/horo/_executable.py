"""Where the horo executable of this installation is."""

import os
import shutil
import sys
import sysconfig


def horo_executable():
    """The path of the executable: HORO_EXE, or horo beside Python, or on the PATH. Raises FileNotFoundError."""
    given = os.environ.get("HORO_EXE")
    beside = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    places = [given] if given else [*(os.path.join(folder, "horo") for folder in beside), "horo"]
    for place in places:
        if found := shutil.which(place):
            return found
    raise FileNotFoundError(f"no horo executable at {' or '.join(places)}: install horo with pip, or set HORO_EXE")
