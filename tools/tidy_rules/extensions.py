"""The rule of extensions: they use the public names of horo, as a package of a third party does."""

import ast

from tidy_rules import source

EXTENSIONS = ("bindings/python/horo/zero/",)
OPEN = ("horo", "horo.torch", "horo.torch.sharding", "horo.elastic")  # the modules whose names are public


def check_extension(name, text):
    if not name.startswith(EXTENSIONS) or not source.is_python(name, text):
        return
    folder = next(each for each in EXTENSIONS if name.startswith(each))
    own = folder.removeprefix("bindings/python/").rstrip("/").replace("/", ".")
    for node in ast.walk(ast.parse(text)):
        for module in _modules(node):
            if _is_of(module, "horo") and module not in OPEN and not _is_of(module, own):
                yield node.lineno, f"{module}: an extension imports {', '.join(OPEN)} and its own files"
        for word in _private_names(node):
            yield node.lineno, f"{word}: an extension uses no private name of another object"


def _modules(node):
    """The modules that a node imports."""
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "horo"]
    return []


def _is_of(module, package):
    return module == package or module.startswith(package + ".")


def _private_names(node):
    """Imported names and attributes that begin with an underscore, unless they are of self or cls."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [each.name for each in node.names if each.name.startswith("_")]
    if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
        is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        return [] if is_own and not node.attr.startswith("_horo") else [node.attr]
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("_horo"):
        return [node.value]
    return []
