"""The program of each rank of an error job: rank_main.py MODULE ROW...

Prints for each row a line "row NAME JSON": the class and the text of the exception, or null.
"""

import importlib
import json
import sys

import table
import torch

import horo.torch as hvd


def report(row, error):
    said = None if error is None else [type(error).__name__, str(error)]
    print(f"row {row.name} {json.dumps(said)}", flush=True)


def check_promise(row):
    """Checks the row's promise about the session."""
    if row.session == table.AGAIN:
        try:
            hvd.allreduce(torch.ones(1), name=f"before {row.name}")
        except (hvd.HoroError, ValueError):
            pass
        else:
            raise AssertionError(f"{row.name}: the session continues, contrary to the row")
        hvd.shutdown()
        hvd.init()
    if row.session in (table.AGAIN, table.GOES_ON):
        total = hvd.allreduce(torch.ones(1), name=f"after {row.name}", op=hvd.Sum).item()
        assert total == hvd.size(), f"{row.name}: the session is not usable afterwards"


def main(module, names):
    importlib.import_module(module)
    rows = {row.name: row for row in table.ROWS}
    for name in names:
        row = rows[name]
        error = None
        try:
            if row.initialized and not hvd.is_initialized():
                hvd.init()  # fails if another rank has already ended
            row.make()
        except Exception as raised:
            error = raised
        report(row, error)
        if row.alone and error is not None and row.session in ("", table.ENDS):
            raise error
        check_promise(row)
    hvd.shutdown()


main(sys.argv[1], sys.argv[2:])
