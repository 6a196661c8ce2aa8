"""python -m horo.checkpoint convert FROM TO: what `horo checkpoint convert` runs where PyTorch is needed."""

import argparse
import sys

from horo.errors import HoroError


def main():
    parser = argparse.ArgumentParser(prog="horo checkpoint")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("convert", help="to or from a .pt file, or a folder of torch.distributed.checkpoint")
    command.add_argument("source", metavar="FROM")
    command.add_argument("target", metavar="TO")
    command.add_argument("--trust", action="store_true", help="run what is pickled in FROM")
    command.add_argument("--step", type=int, default=0, help="of the new checkpoint, where FROM has none")
    given = parser.parse_args()
    try:
        from horo.checkpoint.convert import convert
    except ImportError as error:
        sys.exit(f"horo checkpoint convert: {error}: conversion needs PyTorch: pip install torch")
    try:
        kind, wanted = convert(given.source, given.target, given.trust, given.step)
    except (HoroError, ValueError, TypeError, OSError) as error:
        print(f"horo checkpoint convert: {error}", file=sys.stderr)
        return 1
    print(f"{given.target} is {wanted}, from {kind}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
