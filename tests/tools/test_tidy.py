"""tools/tidy: the rules of one file, each with a line that it finds and a line that it accepts."""

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
        ("ring/os/a.cc", "ring/transport.h"),
        ("ring/reduce/a.cc", "ring/os/socket.h"),
        ("ring/mpi/a.cc", "ring/transport/stream.h"),
        ("ring/codec/a.cc", "ring/group.h"),
        ("ring/schedule/a.cc", "ring/group.h"),
        ("ring/group.h", "ring/transport/stream.h"),
        ("ring/shm/a.cc", "ring/transport/stream.h"),
        ("ring/transport/a.cc", "ring/bootstrap/full_mesh.h"),
        ("ring/control/a.cc", "ring/shm/segment.h"),
        ("ring/bootstrap/a.cc", "ring/control/control_outbox.h"),
        ("ring/algorithms/a.cc", "ring/shm/segment.h"),
        ("ring/algorithms/shm/a.cc", "ring/transport/stream.h"),
        ("ring/group/a.cc", "ring/transport/stream.h"),
        ("ring/group/a.cc", "controller/coordinator.h"),
        ("ring/os/a.cc", "horo/session.h"),
        ("controller/a.cc", "ring/group.h"),
        ("horo/base/a.cc", "horo/engine/engine.h"),
        ("horo/tensors/a.cc", "horo/lane/lane.h"),
        ("horo/lane/a.cc", "horo/engine/engine.h"),
        ("horo/engine/a.cc", "horo/session.h"),
        ("horo/a.cc", "tools/horo/run/child.h"),
        ("horo/a.cc", "elastic/service/server.h"),
        ("bindings/c/a.cc", "horo/engine/engine.h"),
        ("bindings/c/a.cc", "horo/base/log.h"),
        ("tools/horo/machine/a.cc", "tools/horo/doctor/doctor.h"),
        ("tools/horo/run/a.cc", "tools/horo/bench/world.h"),
        ("tools/horo/bench/a.cc", "tools/horo/conformance/op.h"),
        ("examples/a.cc", "tests/ring/run_ranks.h"),
    ],
)
def test_an_include_against_the_table_is_a_finding(name, header):
    assert problems(name, f'#include "{header}"\n')[0] == f'1: {tidy.rooms.room_of(name)}/ may not include "{header}"'


@pytest.mark.parametrize(
    "name, header",
    [
        ("ring/os/a.cc", "horo/base/wire.h"),
        ("ring/group.h", "ring/schedule/schedule.h"),
        ("ring/shm/a.cc", "ring/transport.h"),
        ("ring/transport/a.cc", "ring/mpi/mpi_world.h"),
        ("ring/algorithms/shm/a.cc", "ring/algorithms/slices.h"),
        ("ring/group/a.cc", "ring/algorithms/shm/collectives.h"),
        ("horo/lane/a.cc", "horo/tensors/work.h"),
        ("horo/engine/a.cc", "horo/topology.h"),
        ("horo/engine/a.cc", "controller/coordinator.h"),
        ("bindings/c/a.cc", "horo/horo.h"),
        ("tests/horo/a.cc", "ring/group/choose.h"),
        ("tools/horo/a.cc", "bindings/c/horo_c.h"),
        ("tools/horo/bench/a.cc", "tools/horo/machine/cores.h"),
    ],
)
def test_an_include_of_the_table_is_no_finding(name, header):
    guard = "#pragma once\n" if name.endswith(".h") else ""
    assert problems(name, f'{guard}#include "{header}"\n') == []


def test_a_folder_needs_a_row_in_the_include_table():
    assert "ring/rdma/ has no row" in problems("ring/rdma/a.cc", "int a;\n")[0]
    assert problems("tests/ring/rdma/a.cc", "int a;\n") == []


def test_project_headers_are_named_from_the_root():
    assert "by its path from the root" in problems("ring/os/a.cc", '#include "transport.h"\n')[0]


@pytest.mark.parametrize("header", ["spdlog/spdlog.h", "openssl/evp.h", "CLI/CLI.hpp", "ev.h", "nlohmann/json.hpp"])
def test_a_heavy_header_outside_its_files_is_a_finding(header):
    assert "may be included by" in problems("ring/os/a.cc", f"#include <{header}>\n")[0]


@pytest.mark.parametrize("name", ["horo/base/auth.cc", "elastic/service/a.cc", "tests/elastic/service/a.cc"])
def test_a_heavy_header_may_have_several_places(name):
    assert problems(name, "#include <openssl/evp.h>\n") == []


def test_a_second_include_of_a_heavy_header_is_a_finding():
    texts = {f"elastic/service/{name}.cc": "#include <openssl/evp.h>\n" for name in "ab"}
    assert [name for name, _, _ in tidy.rooms.check_heavy_counts(texts)] == ["elastic/service/b.cc"]
    assert list(tidy.rooms.check_heavy_counts({"elastic/service/a.cc": texts["elastic/service/a.cc"]})) == []


@pytest.mark.parametrize(
    "line, found",
    [
        ("from horo._sets import number_of", "horo._sets"),
        ("import horo.torch.optimizer", "horo.torch.optimizer"),
        ("from horo import _default", "_default"),
        ("from .. import _default", "_default"),
        ("x = optimizer._horo_gradients", "_horo_gradients"),
        ("x = getattr(optimizer, '_horo_gradients')", "_horo_gradients"),
        ("class A:\n    def f(self):\n        return self._horo_names", "_horo_names"),
        ("x = torch.optim.Optimizer._step", "_step"),
    ],
)
def test_a_private_name_in_an_extension_is_a_finding(line, found):
    problem = problems("bindings/python/horo/zero/a.py", line + "\n")
    assert problem and f": {found}: an extension " in problem[0]
    assert problems("bindings/python/horo/torch/a.py", line + "\n") == []


def test_public_names_in_an_extension_are_no_finding():
    text = "import torch\nimport horo.torch as hvd\nfrom horo.elastic import sharded\nfrom horo.zero.pieces import x\n"
    text += "from horo.torch.sharding import Layout\n"
    text += "class A:\n    def f(self):\n        return self._own, hvd.__name__\n"
    assert problems("bindings/python/horo/zero/a.py", text) == []


def test_functions_have_at_most_70_lines():
    assert problems("ring/os/a.cc", function_of(70)) == []
    assert problems("ring/os/a.cc", function_of(71)) == ["1: f: function of 71 lines, at most 70"]
    assert problems("a.py", "def f():\n" + "    g()\n" * 70) == ["1: f: function of 71 lines, at most 70"]


def test_functions_have_at_most_5_parameters():
    six = "int a, int b, int c, int d, int e, std::map<int, int> f"
    assert problems("ring/os/a.cc", function_of(3, six)) == ["1: f: 6 parameters, at most 5"]
    assert problems("ring/os/a.cc", function_of(3, six[len("int a, ") :])) == []
    assert problems("a.py", "def f(a, b, c, d, e, *, g):\n    pass\n") == ["1: f: 6 parameters, at most 5"]
    assert problems("a.py", "class A:\n    def f(self, a, b, c, d, e, g=1, *, h=2):\n        pass\n") == []


def test_architecture_and_the_bench_readme_have_a_limit_in_words():
    assert problems("ARCHITECTURE.md", "a b c d e\n" * 500) == []
    assert problems("ARCHITECTURE.md", "a b c d e\n" * 500 + "a\n") == ["1: document of 2501 words, at most 2500"]
    assert problems("bench/README.md", "a b c d\n" * 800) == []
    assert problems("bench/README.md", "a b c d\n" * 801) == ["1: document of 3204 words, at most 3200"]
    assert problems("docs/a.md", "a b c d e\n" * 5000) == []


def test_the_readme_has_at_most_120_lines():
    assert problems("README.md", "a\n" * 120) == []
    assert problems("README.md", "a\n" * 121) == ["1: file of 121 lines, at most 120"]


def test_a_wrapped_document_has_lines_of_at_most_110_characters():
    words = "a " * 54 + "aa"
    assert problems("ARCHITECTURE.md", words + "\n") == []
    assert problems("ARCHITECTURE.md", words + "b\n") == ["1: line of 111 characters, at most 110 in this document"]
    assert problems("ARCHITECTURE.md", "| " + words + " |\n") == []
    assert problems("ARCHITECTURE.md", "x" * 200 + "\n") == []
    assert problems("docs/a.md", words + "b\n") == []


def test_files_have_at_most_400_lines_of_at_most_120_characters():
    assert problems("ring/os/a.cc", "int a;\n" * 401) == ["1: file of 401 lines, at most 400"]
    assert problems("ring/os/a.cc", "// " + "x" * 118 + "\n") == ["1: line of 121 characters, at most 120"]
    assert problems("ring/os/a.cc", "// " + "x" * 117 + "\n" + "int a;\n" * 399) == []


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
def test_a_forbidden_line_is_a_finding(line):
    assert len(problems("ring/os/a.cc", line + "\n")) == 1


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
def test_code_rules_skip_strings_and_comments(line):
    assert problems("ring/os/a.cc", line + "\n") == []


def test_files_named_backoff_may_sleep():
    assert problems("tools/horo/run/backoff.cc", "  std::this_thread::sleep_for(wait);\n") == []


def test_file_names_include_guards_and_last_newlines():
    assert problems("ring/os/RingStep.cc", "int a;\n") == ["1: file names are snake_case"]
    assert problems("ring/os/a.h", "int a;\n") == ["1: a header begins with #pragma once"]
    assert problems("ring/os/a.h", "#pragma once\nint a;") == ["2: no newline at the end of the file"]


def test_clang_format_findings_name_file_and_line(tmp_path):
    (tmp_path / "good.cc").write_text("int a;\n")
    (tmp_path / "bad.cc").write_text("int a;\nint   b;\n")
    assert [(name, line) for name, line, _ in tidy.layout.check_clang_format(["good.cc", "bad.cc"], tmp_path)] == [
        ("bad.cc", 2)
    ]
    assert tidy.layout.check_clang_format(["good.cc"], tmp_path) == []


def test_ruff_findings_name_file_and_line(tmp_path):
    (tmp_path / "good.py").write_text("a = 1\n")
    (tmp_path / "unused.py").write_text("a = 1\nimport os\n")
    (tmp_path / "layout.py").write_text("a =   1\n")
    findings = tidy.layout.check_ruff(["good.py", "unused.py", "layout.py"], tmp_path)
    assert {(name, line) for name, line, _ in findings} == {("unused.py", 2), ("layout.py", 1)}
    assert tidy.layout.check_ruff(["good.py"], tmp_path) == []


def test_the_exit_status_is_1_with_a_finding_and_0_without(tmp_path):
    def run():
        return subprocess.run(
            [sys.executable, "tools/tidy", "tools", "a.md"], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )

    (tmp_path / "tools").mkdir()
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "docs/glossary.md"):
        (tmp_path / name).write_text("x\n")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tools/tidy", tmp_path / "tools/tidy")
    shutil.copytree(ROOT / "tools/tidy_rules", tmp_path / "tools/tidy_rules")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    good = run()
    (tmp_path / "a.md").write_text("x \n")
    bad = run()
    assert (good.returncode, good.stdout.splitlines()[:-1]) == (0, [])
    assert (bad.returncode, bad.stdout.splitlines()[:-1]) == (1, ["a.md:1: space at the end of the line"])
    assert good.stdout.endswith("no findings\n") and bad.stdout.endswith("1 finding\n")
