"""ARCHITECTURE.md names each folder with source, and docs/glossary.md names headers that exist."""

import pathlib
import re

from tidy_rules import source

MAP = "ARCHITECTURE.md"
GLOSSARY = "docs/glossary.md"
PRODUCT_FOLDERS = ("horo/", "ring/", "controller/", "elastic/", "bindings/", "tools/", "bench/", "examples/")
HEADER_CELL = "defined in"
SOURCE_PATH = re.compile(r"(?<![\w/.-])[\w./-]+\.(?:h|cc|py)\b")


def check_map(texts):
    """Each folder with source files is in the map, as `folder/`. One entry stands for tests/ and all below."""
    if MAP not in texts:
        return
    folders = set()
    for name, text in texts.items():
        if source.is_cpp(name) or source.is_python(name, text):
            folder = str(pathlib.PurePosixPath(name).parent)
            folders |= (
                {folder} if name.startswith(PRODUCT_FOLDERS) else {"tests"} if name.startswith("tests/") else set()
            )
    for folder in sorted(folders):
        if not re.search(rf"(?<![\w/.-]){re.escape(folder)}/(?![\w.])", texts[MAP]):
            yield MAP, 1, f"{folder}/ has source files and is not in the map"


def check_glossary(texts):
    """Each file named in the column "defined in" of the glossary's tables exists."""
    column = None
    for number, line in enumerate(texts.get(GLOSSARY, "").splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        heads = [cell.lower() for cell in cells]
        if HEADER_CELL in heads:
            column = heads.index(HEADER_CELL)
        elif not cells:
            column = None
        elif column is not None and column < len(cells):
            for found in SOURCE_PATH.finditer(cells[column]):
                if found[0] not in texts:
                    yield GLOSSARY, number, f'"{found[0]}" is no file of the repository'
