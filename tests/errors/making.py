"""Makes the messages of docs/errors.md by making the mistakes, and the document from the messages."""

import collections
import json
import os
import re
import shutil
import subprocess
import sys

import table
from table import FOLDER, ROOT, Said

sys.path.insert(0, str(ROOT / "tools"))

import ranks  # noqa: E402

DOCUMENT = ROOT / "docs/errors.md"
COMMAND_DEADLINE_S = 60

HEAD = """# Errors

What can go wrong, and what horo says. Every row is made by running it: `tests/errors/` holds a small program for
each, the tests compare what it prints with this page, and `tools/errors --write` makes the page anew. What changes
from run to run stands in angle brackets: `<port>`, `<pid>`, `<host>`.

An exception of the class `ValueError`, `TypeError` or `NotImplementedError` comes at the call, before anything is
queued. The others are `horo.HoroError`s, come out of the wait (`synchronize`, `step`, or the call itself where it
waits), and are the same on every rank: `Mismatch` fails one tensor and the session goes on; `PeerLost` ends the
session, and its `origin` is the number of the rank that was lost first; `ShutDown` is what works get that a
`shutdown()` overtakes.
"""
COLUMNS = ("What happened", "What horo says", "Where", "What to do", "The session goes on")


class MistakeFailed(AssertionError):
    """A row did not do what it should: nothing was printed, a promise was broken, or its time was over."""


def clean_environment(extra=None):
    """This process's variables without those of a job around it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HORO_")}
    for name in ("HORO_LIBRARY", "HORO_EXE"):
        if name in os.environ:
            kept[name] = os.environ[name]
    return kept | (extra or {})


class Run:
    """What a by_command row starts programs with."""

    def __init__(self):
        given = os.environ.get("HORO_EXE")
        places = [given] if given else [str(ROOT / ".venv/bin/horo"), str(ROOT / "build/release/tools/horo/horo")]
        found = [place for place in places if shutil.which(place)]
        if not found:
            raise MistakeFailed(f"no horo executable at any of {places}: build it, or set HORO_EXE")
        self.horo = found[0]
        self.python = sys.executable
        self.free_address = ranks.free_address

    def __call__(self, command, env=None, deadline_s=COMMAND_DEADLINE_S, **options):
        return subprocess.run(
            command, env=clean_environment(env), capture_output=True, text=True, timeout=deadline_s, **options
        )


def jobs_of(rows):
    """Lists of rows that are made together: one job each."""
    jobs = collections.defaultdict(list)
    for row in rows:
        alone = row.alone or row.is_command
        jobs[row.name if alone else f"{row.module} on {row.ranks} ranks"].append(row)
    return dict(jobs)


def missing(job):
    """Why it cannot be made here; None: it can."""
    return next(filter(None, (row.needs() for row in job)), None)


def make(job):
    """Runs the rows of one job; what each said, by its name."""
    if job[0].is_command:
        text = job[0].make(Run())
        if not text.strip():
            raise MistakeFailed(f"{job[0].name} printed nothing")
        return {job[0].name: Said(table.normalised(text, job[0]), job[0].where)}
    program = [sys.executable, str(FOLDER / "rank_main.py"), job[0].module, *(row.name for row in job)]
    deadline_s = sum(row.deadline_s for row in job) if job[0].alone else 60 + 5 * len(job)
    ended = ranks.run_ranks(program, job[0].ranks, deadline_s, job[0].env)
    if not job[0].alone and any(rank.code != 0 for rank in ended):
        raise MistakeFailed(str(ranks.RanksFailed(ended)))
    return {row.name: _said(row, ended) for row in job}


def _said(row, ended):
    """One message where all ranks say the same; else one for each group of ranks that does."""
    groups = collections.defaultdict(list)
    kinds = []
    for rank in ended:
        found = re.search(rf"^row {row.name} (.+)$", rank.output, re.M)
        said = json.loads(found[1]) if found else None
        if said is not None:
            kinds.append(said[0])
            groups[table.normalised(": ".join(said), row)].append(rank.rank)
    logged = _logged(row, ended)
    if not groups and not logged:
        raise MistakeFailed(f"{row.name}: no rank said anything\n{ranks.RanksFailed(ended)}")
    if len(groups) == 1:
        message = next(iter(groups))
        who = next(iter(groups.values()))
        said = "every rank" if len(who) == len(ended) else _ranks_text(who)
    else:
        message = "\n".join(f"{_ranks_text(who)}: {text}" for text, who in groups.items())
        said = "every rank" if sum(map(len, groups.values())) == len(ended) else "these ranks"
    where = f"at the call, {said}" if groups else "log"
    return Said("\n".join(filter(None, [*logged, message])), row.where or where)


def _logged(row, ended):
    """Lines of the log that the row asks for, each once."""
    if not row.log:
        return []
    lines = [line for rank in ended for line in rank.output.splitlines() if re.search(row.log, line)]
    return list(dict.fromkeys(table.normalised(line, row) for line in lines))


def _ranks_text(numbers):
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(map(str, numbers))


def _code(text):
    """Text as Markdown code inside a table."""
    text = text.replace("|", "\\|")
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if fence == "`" else f"{fence} {text} {fence}"


def line_of(row, said):
    """The row in the document."""
    message = "<br>".join(_code(line) for line in said.message.splitlines() if line.strip())
    return "| " + " | ".join([row.what, message, said.where, row.do, row.session or "-"]) + " |"


def what_of(line):
    """The row.what of a line of the document; empty for other lines."""
    return line.split(" | ")[0].removeprefix("| ") if line.startswith("| ") else ""


def document(rows, lines):
    """The whole page; lines by row.what."""
    text = HEAD
    for section in table.SECTIONS:
        inside = [row for row in rows if row.section == section]
        if inside:
            head = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"
            text += f"\n## {section}\n\n{head}" + "".join(lines[row.what] + "\n" for row in inside)
    return text
