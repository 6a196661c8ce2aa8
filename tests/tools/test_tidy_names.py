"""tools/tidy: the rules of words, types and documents, each with a line that it finds and a line that it accepts."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from tidy_rules import documents, types, words  # noqa: E402

WHO = "w" + "ho"
VAGUE = [WHO, WHO + "ever", "no" + "body", "some" + "body", "every" + "body"]
ACCEPTED = "Every rank waits."


def lines_of(findings):
    return [line for line, _ in findings]


def found_in(check, texts):
    return sorted((name, line) for name, line, _ in check(texts))


@pytest.mark.parametrize("word", VAGUE)
def test_a_vague_subject_is_a_finding_in_any_case(word):
    for text in (f"// {word} waits.\n", f"// {word.capitalize()} waits.\n"):
        assert lines_of(words.check_words("ring/os/a.cc", text)) == [1]
    assert lines_of(words.check_words("ring/os/a.cc", f"// {ACCEPTED}\n")) == []


@pytest.mark.parametrize(
    "name, text, line",
    [
        ("a.h", "int a;\n/* a\n   % */\n", 3),
        ("a.cc", 'f("%: no answer");\n', 1),
        ("a.cc", 'f(R"(a\n%)");\n', 2),
        ("a.py", "a = 1  # %\n", 1),
        ("a.py", 'def f():\n    """A.\n\n    %\n    """\n', 4),
        ("a.py", 'print(f"{a} %")\n', 1),
        ("a.md", "a\n\n%\n", 3),
        ("tools/a", "#!/usr/bin/env bash\n# %\n", 2),
        ("tools/a", '#!/usr/bin/env bash\necho "%"\n', 2),
        ("CMakeLists.txt", "# %\n", 1),
        (".clang-tidy", "# %\n", 1),
    ],
)
def test_comments_documents_and_messages_are_read(name, text, line):
    assert lines_of(words.check_words(name, text.replace("%", WHO))) == [line]
    assert lines_of(words.check_words(name, text.replace("%", ACCEPTED))) == []


@pytest.mark.parametrize(
    "name, text",
    [
        ("a.cc", "int % = f(%);\n"),
        ("a.cc", "// %_is_late\n"),
        ("a.py", "% = 1\n"),
        ("a.py", 'print(f"{%}: 1")\n'),
        ("tools/a", "#!/usr/bin/env bash\n%=1\necho $% ${%}\n"),
        ("a.json", '{"%": 1}\n'),
    ],
)
def test_identifiers_and_data_may_have_any_name(name, text):
    assert lines_of(words.check_words(name, text.replace("%", WHO))) == []


def test_an_allowed_line_is_no_finding_and_has_to_exist(monkeypatch):
    line = f"- Not {WHO}."
    monkeypatch.setattr(words, "ALLOWED", (("a.md", line),))
    assert lines_of(words.check_words("a.md", f"  {line}\n")) == []
    assert lines_of(words.check_words("b.md", f"  {line}\n")) == [1]
    assert list(words.check_allowed_words({"a.md": f"  {line}\n"})) == []
    assert "is not in a.md" in list(words.check_allowed_words({"a.md": ""}))[0][2]


def test_at_most_ten_lines_are_allowed(monkeypatch):
    monkeypatch.setattr(words, "ALLOWED", tuple(("a.md", str(i)) for i in range(11)))
    findings = list(words.check_allowed_words({"a.md": "".join(f"{i}\n" for i in range(11))}))
    assert [problem for _, _, problem in findings] == ["11 allowed lines, at most 10"]


def test_a_cited_document_exists():
    present = {"docs/types.md": "", "ring/a.h": "// See docs/types.md, types.md.\n"}
    assert found_in(words.check_citations, present) == []
    assert found_in(words.check_citations, {"a.h": "int a;\n// See docs/lost.md.\n"}) == [("a.h", 2)]
    assert found_in(words.check_citations, {"a.py": '"""See DES' + 'IGN section 3."""\n'}) == [("a.py", 1)]
    assert found_in(words.check_citations, {"a.md": "See [this](lost.md).\n"}) == [("a.md", 1)]
    assert found_in(words.check_citations, {"a.py": 'open("any.md")\n'}) == []


def type_names(text):
    return [(type_.qualified, type_.is_nested, type_.is_unnamed) for type_ in types.cpp_types(text)]


@pytest.mark.parametrize(
    "text, name",
    [
        ("struct A {};", "A"),
        ("namespace n {\nclass A final : public B<C> {\n};\n}", "n::A"),
        ("namespace n::m { enum class A : int { kB }; }", "n::m::A"),
        ("template <class T, class U = B<T>>\nstruct A { };", "A"),
        ("template <class T>\nrequires(f<T> > 0) struct A<T*> : B { };", "A<T*>"),
        ("struct alignas(64) A { };", "A"),
        ('class CAPABILITY("mutex") A { };', "A"),
        ("class [[nodiscard]] A { };", "A"),
        ('extern "C" { struct A { }; }', "A"),
        ("union A { int b; };", "A"),
    ],
)
def test_a_definition_at_namespace_scope_is_read(text, name):
    assert type_names(text) == [(name, False, False)]


@pytest.mark.parametrize(
    "text",
    [
        "struct A;",
        "enum class A : int;",
        "// struct A {};",
        'const char* a = "struct A {}";',
        "#define A struct B {}",
        "struct stat status {};",
        "struct stat status = {};",
        "void f(struct A* a) { }",
        "template <class A> void f() { }",
        "struct { int a; } b;",
    ],
)
def test_other_uses_of_the_keywords_define_no_type(text):
    assert type_names(text) == []


def test_nested_and_unnamed_types_are_told_apart():
    text = (
        "namespace n { struct A { struct B {}; }; struct A::C {}; void f() { struct D {}; } namespace { class E {}; } }"
    )
    assert type_names(text) == [
        ("n::A", False, False),
        ("n::B", True, False),
        ("n::A::C", True, False),
        ("n::D", True, False),
        ("n::E", False, True),
    ]


@pytest.mark.parametrize(
    "one, other",
    [
        ("namespace n { struct A {}; }", "namespace n { class A; }"),
        ("namespace n { struct A {}; }", "namespace n::m { struct A {}; }"),
        ("namespace n { struct A {}; }", "namespace n { namespace { struct A {}; } }"),
        ("namespace n { struct A {}; }", "namespace n { struct B { struct A {}; }; }"),
        ("struct A {};", "template <> struct A<int> {};"),
    ],
)
def test_two_types_that_differ_are_no_finding(one, other):
    assert found_in(types.check_types, {"ring/a.h": one, "horo/b.h": other}) == []


def test_a_type_that_two_files_define_is_a_finding_in_both():
    text = "namespace n {\nstruct A {};\n}"
    texts = {"ring/a.h": text, "horo/b.cc": text}
    assert found_in(types.check_types, texts) == [("horo/b.cc", 2), ("ring/a.h", 2)]


def test_types_in_unnamed_namespaces_are_unique_in_a_folder():
    text = "namespace n { namespace { struct A {}; } }"
    assert found_in(types.check_types, {"ring/os/a.cc": text, "ring/shm/b.cc": text}) == []
    both = [("ring/os/a.cc", 1), ("ring/os/b.cc", 1)]
    assert found_in(types.check_types, {"ring/os/a.cc": text, "ring/os/b.cc": text}) == both


def test_a_listed_name_has_one_class_in_each_language():
    one, nested = "struct Plan {};", "class A {\n  struct Plan {};\n};"
    python = {"a.py": "class Plan:\n    pass\n"}
    assert found_in(types.check_listed_names, {"a.h": one, **python}) == []
    assert found_in(types.check_listed_names, {"a.h": one, "b.h": nested}) == [("a.h", 1), ("b.h", 2)]
    assert found_in(types.check_listed_names, {"b.py": python["a.py"], **python}) == [("a.py", 1), ("b.py", 1)]
    assert found_in(types.check_listed_names, {"a.h": one, "tests/b.h": nested}) == []
    other = {"a.h": "struct A { struct Other {}; };", "b.h": "struct Other {};"}
    assert found_in(types.check_listed_names, other) == []


def test_the_map_names_each_folder_with_source():
    texts = {"ring/shm/a.h": "", "tests/ring/a.cc": "", "docs/a.md": "", "ring/CMakeLists.txt": ""}
    named = {**texts, "ARCHITECTURE.md": "`ring/shm/` and `tests/`\n"}
    assert list(documents.check_map(named)) == []
    below = {**texts, "ARCHITECTURE.md": "`ring/shm/deep/`, `ring/shm/a.h`, `old/ring/shm/` and `tests/`\n"}
    assert [problem.split()[0] for _, _, problem in documents.check_map(below)] == ["ring/shm/"]


def test_a_header_in_the_glossary_exists():
    table = "| word | defined in |\n|---|---|\n| plan | `ring/a.h` |\n| c/d.h | none |\n\nc/d.h\n"
    assert list(documents.check_glossary({"docs/glossary.md": table, "ring/a.h": ""})) == []
    assert found_in(documents.check_glossary, {"docs/glossary.md": table}) == [("docs/glossary.md", 3)]
