"""The words of comments, documents and messages, and the documents that they cite."""

import pathlib
import re

from tidy_rules import source

# Their subject is a rank, a thread, a member, a caller: a comment names it.
VAGUE = re.compile(r"\b(w(?:ho|hoever)|(?:no|some|every)body)\b", re.I)

# Lines that have such a word nevertheless: (file, the line without its indentation). At most MAX_ALLOWED.
MAX_ALLOWED = 10
ALLOWED = ()

DOCUMENT = re.compile(r"(?<![\w*>/.-])[\w./-]*\w\.md\b")
LOST_DOCUMENT = re.compile(r"\bDESIGN\b")


def check_words(name, text):
    """No vague subject in comments, docstrings, documents and string literals."""
    lines = text.splitlines()
    for first, _, words in source.prose(name, text):
        for found in VAGUE.finditer(words):
            line = first + words.count("\n", 0, found.start())
            if (name, lines[line - 1].strip()) not in ALLOWED:
                yield line, f'"{found[0]}": name the rank, member, thread, caller or program instead'


def check_allowed_words(texts):
    """The list of allowed lines is short, and each of its lines exists."""
    here = "tools/tidy_rules/words.py"
    if len(ALLOWED) > MAX_ALLOWED:
        yield here, 1, f"{len(ALLOWED)} allowed lines, at most {MAX_ALLOWED}"
    for name, line in ALLOWED:
        if line not in (present.strip() for present in texts.get(name, "").splitlines()):
            yield here, 1, f"the allowed line is not in {name}: {line}"


def check_citations(texts):
    """Comments and documents cite documents of the repository only."""
    bases = {pathlib.PurePosixPath(name).name for name in texts}
    for name, text in texts.items():
        for first, kind, words in source.prose(name, text):
            if kind != "comment" or name == "mkdocs.yml":  # its pages are made by tools/docs
                continue
            for found in (*DOCUMENT.finditer(words), *LOST_DOCUMENT.finditer(words)):
                if not (found[0] in texts or pathlib.PurePosixPath(found[0]).name in bases):
                    line = first + words.count("\n", 0, found.start())
                    yield name, line, f'"{found[0]}" is no document of the repository'
