"""python -m horo: the horo executable of this installation."""

import os
import sys

from horo._executable import horo_executable


def main():
    try:
        program = horo_executable()
    except FileNotFoundError as error:
        sys.exit(f"python -m horo: {error}")
    os.execv(program, ["horo", *sys.argv[1:]])


if __name__ == "__main__":
    main()
