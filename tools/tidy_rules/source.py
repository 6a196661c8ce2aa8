"""The files of the project, and the prose in them: comments, docstrings, string literals and documents."""

import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]

CPP = (".h", ".cc")
SUFFIXES = {*CPP, ".py", ".md", ".toml", ".json", ".txt", ".cmake", ".in", ".yml", ".proto"}
SCRIPT_FOLDERS = ("tools/", "bench/", ".ci/")
DOT_FILES = (".clang-format", ".clang-tidy", ".gitignore")

CPP_COMMENT = r"//[^\n]*|/\*.*?\*/"
CPP_LITERAL = r'R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\''
PLACEHOLDER = r"\{[^{}]*\}"


def project_files(root):
    """Every file that git tracks or would track, as paths relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True, text=True
    )
    if listed.returncode != 0:
        sys.exit(f"tidy: git ls-files failed: {listed.stderr.strip()}")
    return sorted({name for name in listed.stdout.splitlines() if (root / name).is_file()})


def read_texts(root):
    """The text files of the project: {path relative to the root: content}."""
    return {name: (root / name).read_text(encoding="utf-8") for name in project_files(root) if is_text(name)}


def is_text(name):
    path = pathlib.PurePosixPath(name)
    is_script = path.suffix == "" and name.startswith(SCRIPT_FOLDERS)
    return path.suffix in SUFFIXES or is_script or name in DOT_FILES


def is_cpp(name):
    return name.endswith(CPP)


def is_python(name, text):
    return name.endswith(".py") or text.startswith("#!/usr/bin/env python3")


def is_document(name):
    return name.endswith(".md")


def is_data(name):
    return name.endswith(".json") or (name.endswith(".txt") and not name.endswith("CMakeLists.txt"))


def is_product(name):
    return not name.startswith("tests/")


def blank(found):
    return re.sub(r"[^\n]", " ", found.group())


def without_comments_and_strings(text):
    """C++ with the same number of lines, in which comments and literals are blank."""
    return re.sub(f"{CPP_COMMENT}|{CPP_LITERAL}", blank, text, flags=re.S)


def prose(name, text):
    """The comments, docstrings, string literals and lines of documents of a file, as (first line, kind, text).

    kind is "comment" (docstrings and documents included) or "string".
    """
    if is_document(name):
        return [(1, "comment", text)]
    if is_cpp(name):
        return list(cpp_prose(text))
    if is_python(name, text):
        return list(python_prose(text))
    return [] if is_data(name) else list(script_prose(text))


def cpp_prose(text):
    for found in re.finditer(f"(?P<comment>{CPP_COMMENT})|{CPP_LITERAL}", text, re.S):
        line = text.count("\n", 0, found.start()) + 1
        yield line, "comment" if found["comment"] else "string", found.group()


def python_prose(text):
    """A literal in triple quotes counts as a docstring. The placeholders of an f-string are code, not prose."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "COMMENT":
            yield token.start[0], "comment", token.string
        elif kind in ("STRING", "FSTRING_MIDDLE"):
            prefix, quote = re.match(r"(\w*)(\"\"\"|''')?", token.string).groups()
            is_format = kind == "STRING" and "f" in prefix.lower()
            words = re.sub(PLACEHOLDER, blank, token.string) if is_format else token.string
            yield token.start[0], "comment" if quote else "string", words


def script_prose(text):
    """Shell, CMake and settings: whole lines, without variables and assignments to them."""
    for number, line in enumerate(text.splitlines(), 1):
        yield number, "comment", re.sub(r"\$\{?\w+|\b\w+\+?=", blank, line)
