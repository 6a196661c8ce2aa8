"""Sizes, names and layout: rules of any text file, and the lengths of functions."""

import ast
import pathlib
import re

import lizard

from tidy_rules import source

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 400
MAX_LINE_CHARACTERS = 120
MAX_PARAMETERS = 5
MAX_DOCUMENT_WORDS = {"ARCHITECTURE.md": 2500, "bench/README.md": 3200}
MAX_DOCUMENT_LINES = {"README.md": 120}
MAX_DOCUMENT_COLUMNS = 110
WRAPPED_DOCUMENTS = (
    "ARCHITECTURE.md",
    "README.md",
    "bench/README.md",
    "docs/control_plane.md",
    "docs/data_plane.md",
    "docs/elastic.md",
    "docs/from_torch.md",
    "docs/install.md",
    "docs/launch.md",
    "docs/process_model.md",
    "docs/protocol.md",
    "docs/quickstart.md",
    "docs/torch_distributed.md",
    "docs/troubleshooting.md",
)

UNFINISHED = r"\b(?:TO(?=D)DO|FIX(?=M)ME|XX(?=X)X)\b"


def check_lines(name, text):
    is_prose = source.is_document(name) or source.is_data(name)
    for number, line in enumerate(text.splitlines(), 1):
        if line != line.rstrip():
            yield number, "space at the end of the line"
        if "\t" in line:
            yield number, "tab"
        if len(line) > MAX_LINE_CHARACTERS and not is_prose:
            yield number, f"line of {len(line)} characters, at most {MAX_LINE_CHARACTERS}"
        if not is_prose and re.search(UNFINISHED, line):
            yield number, "a note of unfinished work: finish it, or file an issue"
    if text and not text.endswith("\n"):
        yield len(text.splitlines()), "no newline at the end of the file"


def check_size(name, text):
    lines = text.count("\n")
    is_free = source.is_document(name) or name.endswith(".json")
    most = MAX_DOCUMENT_LINES.get(name, lines) if is_free else MAX_FILE_LINES
    if lines > most:
        yield 1, f"file of {lines} lines, at most {most}"
    words = len(text.split())
    if words > MAX_DOCUMENT_WORDS.get(name, words):
        yield 1, f"document of {words} words, at most {MAX_DOCUMENT_WORDS[name]}"


def check_columns(name, text):
    """Lines of a wrapped document, but for rows of tables and for a line that is one word, such as an address."""
    if name not in WRAPPED_DOCUMENTS:
        return
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_DOCUMENT_COLUMNS and not line.startswith("|") and " " in line.strip():
            yield number, f"line of {len(line)} characters, at most {MAX_DOCUMENT_COLUMNS} in this document"


def check_name(name, _text):
    path = pathlib.PurePosixPath(name)
    if path.suffix in (*source.CPP, ".py") and not re.fullmatch(r"[a-z0-9_]+", path.stem):
        yield 1, "file names are snake_case"


def check_functions(name, text):
    if source.is_cpp(name):
        yield from check_cpp_functions(name, text)
    elif source.is_python(name, text):
        yield from check_python_functions(name, text)


def check_cpp_functions(name, text):
    for function in lizard.analyze_file.analyze_source_code(name, text).function_list:
        lines = function.end_line - function.start_line + 1
        yield from check_function(function.start_line, function.name, lines, function.parameter_count)


def check_python_functions(name, text):
    """Only parameters without a default count: a parameter with a default is an option."""
    for node in ast.walk(ast.parse(text, name)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = node.args.posonlyargs + node.args.args
            required = [a.arg for a in given[: len(given) - len(node.args.defaults)] if a.arg not in ("self", "cls")]
            required += [a.arg for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults) if d is None]
            lines = node.end_lineno - node.lineno + 1
            yield from check_function(node.lineno, node.name, lines, len(required))


def check_function(line, name, lines, parameters):
    if lines > MAX_FUNCTION_LINES:
        yield line, f"{name}: function of {lines} lines, at most {MAX_FUNCTION_LINES}"
    if parameters > MAX_PARAMETERS:
        yield line, f"{name}: {parameters} parameters, at most {MAX_PARAMETERS}"
