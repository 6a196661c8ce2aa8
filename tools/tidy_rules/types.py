"""Type names: no type is defined twice in a namespace, in an unnamed namespace of a folder, or under a listed name."""

import ast
import collections
import dataclasses
import pathlib
import re

from tidy_rules import source

# Words of docs/glossary.md that name one class: C++ and Python define each at most once, nested classes included.
LISTED = {
    "Bucket",
    "Buckets",
    "Engine",
    "Group",
    "Job",
    "Lane",
    "Part",
    "Piece",
    "Plan",
    "Report",
    "Schedule",
    "Session",
    "Slot",
    "Stream",
    "Transport",
    "Unit",
    "Verdict",
    "Work",
}

TOKEN = re.compile(r"[A-Za-z_]\w*|::|\S")
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)
ATTRIBUTE = re.compile(r"\[\[.*?\]\]", re.S)


@dataclasses.dataclass(frozen=True)
class Type:
    """A definition of a class, struct, union or enum in C++."""

    name: str
    line: int
    namespace: str  # "horo::tools"; unnamed namespaces are left out
    is_nested: bool  # in a class or a function
    is_unnamed: bool  # in an unnamed namespace

    @property
    def qualified(self):
        return f"{self.namespace}::{self.name}" if self.namespace else self.name


def cpp_types(text):
    """The types that a C++ file defines, declarations excluded."""
    code = DIRECTIVE.sub(source.blank, source.without_comments_and_strings(text))
    code = ATTRIBUTE.sub(source.blank, code)
    scopes, head, types = [], [], []  # scopes: what scope_of returns
    for found in TOKEN.finditer(code):
        token = found[0]
        if token == "{":
            kind, name = scope_of(head)
            if kind == "type":
                line = code.count("\n", 0, found.start()) + 1
                types.append(type_of(name, line, scopes))
            scopes.append((kind, name))
        elif token == "}" and scopes:
            scopes.pop()
        if token in "{};":
            head = []
        else:
            head.append(token)
    return types


def type_of(name, line, scopes):
    scopes = [scope for scope in scopes if scope[0] != "linkage"]
    namespaces = [scope for kind, scope in scopes if kind == "namespace"]
    return Type(
        name,
        line,
        namespace="::".join(scope for scope in namespaces if scope),
        is_nested=len(namespaces) < len(scopes) or "::" in name,
        is_unnamed="" in namespaces,
    )


def scope_of(head):
    """What the tokens before a brace open: ("namespace" | "type" | "linkage" | "other", name or "")."""
    if "namespace" in head and "=" not in head:
        return "namespace", "".join(head[head.index("namespace") + 1 :])
    if head == ["extern"]:  # extern "C", with its string blanked
        return "linkage", ""
    head = without_parentheses(without_template_head(head))
    keywords = [i for i, token in enumerate(head) if token in ("class", "struct", "union", "enum")]
    if not keywords or "=" in head:
        return "other", ""
    name = type_name(head[keywords[-1] + 1 :])
    return ("type", name) if name else ("other", "")


def type_name(tokens):
    """Foo of "alignas Foo final : Base", Foo<T*> of a specialization; "" where no type is defined."""
    name = ""
    for i, token in enumerate(tokens):
        if token in (":", "final"):
            break
        if token == "<":
            end = tokens.index(":") if ":" in tokens[i:] else len(tokens)
            return name + "".join(tokens[i:end])
        if token == "::":
            name += token
        elif re.fullmatch(r"[A-Za-z_]\w*", token):
            is_prefix = name == "" or name.endswith("::") or name.isupper() or name == "alignas"
            if not is_prefix:
                return ""  # a function or variable of an elaborated type
            name = name + token if name.endswith("::") else token
        else:
            return ""
    return name


def without_template_head(tokens):
    """The tokens without "template <...>"."""
    kept, depth, is_template = [], 0, False
    for token in tokens:
        if token == "template":
            is_template = True
        elif is_template and token in "<>":
            depth += 1 if token == "<" else -1
            is_template = depth > 0
        elif not is_template:
            kept.append(token)
    return kept


def without_parentheses(tokens):
    kept, depth = [], 0
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if depth == 0 and token != ")":
            kept.append(token)
    return kept


def check_types(texts):
    """No namespace-scope type is defined by two files, and no type of an unnamed namespace by two files of a folder."""
    definitions = collections.defaultdict(list)  # {(scope, qualified name): [(file, line)...]}
    for name, text in texts.items():
        for type_ in cpp_types(text) if source.is_cpp(name) else ():
            folder = str(pathlib.PurePosixPath(name).parent)
            if not type_.is_nested:
                scope = f"unnamed namespaces of {folder}/" if type_.is_unnamed else "the tree"
                definitions[scope, type_.qualified].append((name, type_.line))
    for (scope, qualified), places in definitions.items():
        files = sorted({name for name, _ in places})
        if len(files) > 1:
            for name, line in places:
                others = ", ".join(other for other in files if other != name)
                yield name, line, f"{qualified} is defined twice in {scope}: also in {others}"


def check_listed_names(texts):
    """A listed name belongs to one class of C++, and to one of Python."""
    definitions = collections.defaultdict(list)  # {(language, name): [(file, line)...]}
    for name, text in texts.items():
        if not source.is_product(name):
            continue
        if source.is_cpp(name):
            for type_ in cpp_types(text):
                definitions["C++", type_.name.split("::")[-1]].append((name, type_.line))
        elif source.is_python(name, text):
            for node in ast.walk(ast.parse(text, name)):
                if isinstance(node, ast.ClassDef):
                    definitions["Python", node.name].append((name, node.lineno))
    for (language, listed), places in definitions.items():
        if listed in LISTED and len(places) > 1:
            for name, line in places:
                others = ", ".join(f"{other}:{at}" for other, at in places if (other, at) != (name, line))
                yield name, line, f"a second class {listed} of {language}: also in {others}; see docs/glossary.md"
