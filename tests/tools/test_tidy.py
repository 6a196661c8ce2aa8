"""Every rule of tools/tidy finds what it is there for, and leaves alone what it is not."""

import importlib.machinery
import importlib.util
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


sys.path.insert(0, str(ROOT / "tools"))


def load_tidy():
    loader = importlib.machinery.SourceFileLoader("tidy", str(ROOT / "tools/tidy"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("tidy", loader))
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


tidy = load_tidy()


def problems(name, text):
    return [f"{line}: {problem}" for _, line, problem in tidy.check_file(name, text)]


def function_of(lines, parameters="int a"):
    return f"void f({parameters}) {{\n" + "  g();\n" * (lines - 2) + "}\n"


@pytest.mark.parametrize(
    "name, header",
    [
        ("ring/a.cc", "controller/coordinator.h"),
        ("ring/a.cc", "horo/session.h"),
        ("controller/a.cc", "ring/group.h"),
        ("horo/base/a.cc", "horo/engine/engine.h"),
        ("bindings/c/a.cc", "horo/engine/engine.h"),
        ("bindings/c/a.cc", "horo/base/log.h"),
        ("horo/a.cc", "tools/horo/run.h"),
        ("horo/a.cc", "elastic/service/server.h"),
    ],
)
def test_a_room_may_not_look_into_one_that_is_closed_to_it(name, header):
    assert problems(name, f'#include "{header}"\n') == [f'1: {tidy.rooms.room_of(name)}/ may not include "{header}"']


@pytest.mark.parametrize(
    "name, header",
    [
        ("ring/a.cc", "horo/base/wire.h"),
        ("ring/a.cc", "ring/transport.h"),
        ("horo/a.cc", "controller/coordinator.h"),
        ("bindings/c/a.cc", "horo/horo.h"),
        ("tests/hall/a.cc", "ring/group.h"),
        ("tools/horo/a.cc", "bindings/c/horo_c.h"),
    ],
)
def test_open_doors_stay_open(name, header):
    assert problems(name, f'#include "{header}"\n') == []


def test_project_headers_are_named_from_the_root():
    assert "by its path from the root" in problems("ring/a.cc", '#include "transport.h"\n')[0]


@pytest.mark.parametrize("header", ["spdlog/spdlog.h", "openssl/evp.h", "CLI/CLI.hpp", "ev.h", "nlohmann/json.hpp"])
def test_heavy_headers_have_their_place(header):
    assert "may be included by" in problems("ring/a.cc", f"#include <{header}>\n")[0]


def test_a_heavy_header_is_compiled_once():
    texts = {f"elastic/service/{name}.cc": "#include <openssl/evp.h>\n" for name in "ab"}
    assert [name for name, _, _ in tidy.rooms.check_heavy_counts(texts)] == ["elastic/service/b.cc"]
    assert list(tidy.rooms.check_heavy_counts({"elastic/service/a.cc": texts["elastic/service/a.cc"]})) == []


def test_functions_have_at_most_70_lines():
    assert problems("ring/a.cc", function_of(70)) == []
    assert problems("ring/a.cc", function_of(71)) == ["1: f: function of 71 lines, at most 70"]
    assert problems("a.py", "def f():\n" + "    g()\n" * 70) == ["1: f: function of 71 lines, at most 70"]


def test_functions_have_at_most_5_parameters():
    six = "int a, int b, int c, int d, int e, std::map<int, int> f"
    assert problems("ring/a.cc", function_of(3, six)) == ["1: f: 6 parameters, at most 5"]
    assert problems("ring/a.cc", function_of(3, six[len("int a, ") :])) == []
    assert problems("a.py", "def f(a, b, c, d, e, *, g):\n    pass\n") == ["1: f: 6 parameters, at most 5"]
    assert problems("a.py", "class A:\n    def f(self, a, b, c, d, e, g=1, *, h=2):\n        pass\n") == []


def test_files_have_at_most_400_lines_of_at_most_120_characters():
    assert problems("ring/a.cc", "int a;\n" * 401) == ["1: file of 401 lines, at most 400"]
    assert problems("ring/a.cc", "// " + "x" * 118 + "\n") == ["1: line of 121 characters, at most 120"]
    assert problems("ring/a.cc", "// " + "x" * 117 + "\n" + "int a;\n" * 399) == []


@pytest.mark.parametrize(
    "line",
    [
        "  goto end;",
        "  thread.detach();",
        "  std::this_thread::sleep_for(1ms);",
        "  ::usleep(5);",
        "  ::sleep(5);",
        "  std::atomic_thread_fence(std::memory_order_seq_cst);",
        "#ifdef HORO_HAVE_CUDA",
        "using namespace std;",
        "  // TO" + "DO: later",
        "  f(); ",
        "\tf();",
    ],
)
def test_a_line_that_the_house_does_not_have(line):
    assert len(problems("ring/a.cc", line + "\n")) == 1


@pytest.mark.parametrize(
    "line",
    [
        '  say("goto the next");',
        "// sleep_for is not used",
        "#if defined(__clang__)",
        "using namespace std::chrono_literals;",
        "  for (auto c : {'\"', 'x'}) f(c);",
    ],
)
def test_words_in_strings_and_comments_are_free(line):
    assert problems("ring/a.cc", line + "\n") == []


def test_a_back_off_may_sleep():
    assert problems("tools/horo/backoff.cc", "  std::this_thread::sleep_for(wait);\n") == []


def test_names_guards_and_ends_of_files():
    assert problems("ring/RingStep.cc", "int a;\n") == ["1: file names are snake_case"]
    assert problems("ring/a.h", "int a;\n") == ["1: a header begins with #pragma once"]
    assert problems("ring/a.h", "#pragma once\nint a;") == ["2: no newline at the end of the file"]


def test_clang_format_is_asked(tmp_path):
    (tmp_path / "good.cc").write_text("int a;\n")
    (tmp_path / "bad.cc").write_text("int a;\nint   b;\n")
    assert [(name, line) for name, line, _ in tidy.layout.check_clang_format(["good.cc", "bad.cc"], tmp_path)] == [
        ("bad.cc", 2)
    ]
    assert tidy.layout.check_clang_format(["good.cc"], tmp_path) == []


def test_a_finding_makes_the_program_fail_and_no_finding_lets_it_pass(tmp_path):
    def run():
        return subprocess.run(
            [sys.executable, "tools/tidy", "tools", "a.md"], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )

    (tmp_path / "tools").mkdir()
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copy(ROOT / "tools/tidy", tmp_path / "tools/tidy")
    shutil.copytree(ROOT / "tools/tidy_rules", tmp_path / "tools/tidy_rules")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    good = run()
    (tmp_path / "a.md").write_text("x \n")
    bad = run()
    assert (good.returncode, good.stdout.splitlines()[:-1]) == (0, [])
    assert (bad.returncode, bad.stdout.splitlines()[:-1]) == (1, ["a.md:1: space at the end of the line"])
    assert good.stdout.endswith("no findings\n") and bad.stdout.endswith("1 finding\n")
