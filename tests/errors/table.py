"""The rows of docs/errors.md: mistakes and failures, and functions that make them.

A row is a function in one of the files rows_*.py of this folder, with one of two decorators:

    @on_ranks("Ranks that disagree", "Another shape", do="...")
    def another_shape():                       # runs on every rank, after init; its exception is the message
        hvd.allreduce(torch.ones(2 + hvd.rank()), name="weights")

    @by_command("Launching", "No ranks", do="...", where="launcher, exit code 2")
    def no_ranks(run):                         # runs in the test; its result is the message
        return run([run.horo, "run", "-n", "0", "true"]).stderr

Rows of on_ranks after which the session is usable, or is usable after shutdown() and init(), share one job; the row's
promise about the session is checked after it. A row that needs separate processes has alone=True.
"""

import dataclasses
import importlib
import pathlib
import re
import socket
from collections.abc import Callable

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent

GOES_ON, AGAIN, ENDS = "yes", "after shutdown() and init()", "no"

# The order of the sections in the document; a row's section is one of them.
SECTIONS = (
    "Launching",
    "Measuring",
    "Starting",
    "Settings",
    "Ranks that disagree",
    "Ranks that die, stop or leave",
    "Checkpoints",
    "Exceptions, signals and exits",
    "Tensors",
    "DistributedOptimizer",
    "Process sets and join",
    "fork",
    "init and shutdown",
    "Not implemented",
)

# Parts that differ between runs. A row adds its own pairs (pattern, placeholder), which are applied first.
CHANGING = (
    (re.escape(str(ROOT)), "<horo>"),
    (r"\bpid \d+", "pid <pid>"),
    (r"\b(127\.0\.0\.1|0\.0\.0\.0|localhost|\[::1?\]):\d+", r"\1:<port>"),
    (re.escape(socket.gethostname()), "<host>"),
    (r"/tmp/[\w./-]+", "<folder>"),
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One mistake."""

    section: str
    what: str
    make: Callable
    do: str  # the remedy; Markdown
    session: str  # whether the session continues: GOES_ON, AGAIN, ENDS, or "" for a row without a session
    where: str = ""  # where the message appears; derived from the run if empty
    ranks: int = 2
    alone: bool = False
    env: dict = dataclasses.field(default_factory=dict)
    log: str = ""  # a pattern: lines of any rank's output that belong to the message
    changing: tuple = ()
    initialized: bool = True  # on_ranks: make() runs after init()
    deadline_s: float = 180
    needs: Callable = lambda: None  # the reason why this machine cannot make the row; None if it can

    @property
    def name(self):
        return self.make.__name__

    @property
    def module(self):
        return self.make.__module__

    @property
    def is_command(self):
        return not self.ranks


ROWS = []


def _add(row):
    if row.section not in SECTIONS:
        raise ValueError(f"{row.name}: no section {row.section!r} in tests/errors/table.py")
    if any(other.name == row.name or other.what == row.what for other in ROWS):
        raise ValueError(f"two rows are called {row.name}, {row.what!r}")
    ROWS.append(row)
    return row.make


def on_ranks(section, what, *, do, session=GOES_ON, **more):
    """The function is run by every rank of a job; its exception is the message. more: fields of Row."""
    own_job = {"alone", "env", "log", "initialized"} & more.keys() or session == ENDS
    more["alone"] = bool(own_job)
    return lambda make: _add(Row(section, what, make, do, session, **more))


def by_command(section, what, *, do, where, session="", **more):
    """The function is run once, with run(argv, env={}, deadline_s=...) -> subprocess.CompletedProcess; it returns the
    message. run.horo is the horo executable, run.python this Python, run.free_address() an address without a listener.
    """
    return lambda make: _add(Row(section, what, make, do, session, where=where, ranks=0, **more))


def load():
    """All rows, in the order of the files and of the functions in them."""
    for path in sorted(FOLDER.glob("rows_*.py")):
        importlib.import_module(path.stem)
    return ROWS


def normalised(text, row):
    """The message with placeholders for the parts that differ between runs."""
    for pattern, placeholder in (*row.changing, *CHANGING):
        text = re.sub(pattern, placeholder, text)
    return text.strip()


@dataclasses.dataclass(frozen=True)
class Said:
    """The message of one row."""

    message: str  # normalised; several lines if ranks differ
    where: str
