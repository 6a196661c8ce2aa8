"""The pages of the documentation site, without mkdocs: tools/docs builds the site itself."""

import importlib.machinery
import importlib.util
import re

import pytest


@pytest.fixture(scope="module")
def docs(request):
    loader = importlib.machinery.SourceFileLoader("docs", str(request.config.rootpath / "tools/docs"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("docs", loader))
    loader.exec_module(module)
    return module


def test_every_file_that_a_document_names_exists(docs):
    assert list(docs.missing_files()) == []


def test_the_c_reference_has_every_declaration(docs):
    declared = re.findall(r"\b(horo_\w+)\(", re.sub(r"/\*.*?\*/", "", docs.text_of(docs.C_HEADER), flags=re.S))
    titles = [title for title in docs.c_page().splitlines() if title.startswith("## ")]
    assert {name for name in declared if f"`{name}`" not in "".join(titles)} == set()


def test_every_page_is_in_the_navigation(docs):
    navigation = docs.text_of("mkdocs.yml").split("\nnav:", 1)[1]
    generated = {"python_api.md", "c_api.md", "cpp_api.md"}
    assert set(re.findall(r": (\w+\.md)$", navigation, re.M)) == set(docs.targets().values()) | generated
