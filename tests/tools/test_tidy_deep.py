"""tools/tidy --deep: the choice of the sources that a change touches, and what clang-tidy reports."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from tidy_rules import deep  # noqa: E402


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder, name, text):
    (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", name)
    return git(folder, "rev-parse", "HEAD")


def repository(folder):
    git(folder, "init", "-q")
    return commit(folder, "a.cc", "int a;\n")


def test_a_single_commit_has_no_base_and_no_changed_source(tmp_path):
    repository(tmp_path)
    assert deep.default_base(tmp_path) is None
    assert deep.changed_sources(["a.cc"], {"a.cc": "int a;\n"}, "", tmp_path) == []


def test_the_default_base_is_the_parent_commit(tmp_path):
    first = repository(tmp_path)
    commit(tmp_path, "b.cc", "int b;\n")
    assert deep.default_base(tmp_path) == first


def test_the_default_base_of_a_branch_is_where_it_left_origin_main(tmp_path):
    first = repository(tmp_path)
    git(tmp_path, "update-ref", "refs/remotes/origin/main", first)
    commit(tmp_path, "b.cc", "int b;\n")
    second = commit(tmp_path, "c.cc", "int c;\n")
    assert deep.default_base(tmp_path) == first
    git(tmp_path, "update-ref", "refs/remotes/origin/main", second)
    assert deep.default_base(tmp_path) == git(tmp_path, "rev-parse", "HEAD~1")


def test_changed_files_are_committed_edited_and_untracked_ones(tmp_path):
    first = repository(tmp_path)
    commit(tmp_path, "b.cc", "int b;\n")
    (tmp_path / "a.cc").write_text("int c;\n")
    (tmp_path / "d.cc").write_text("int d;\n")
    assert deep.changed_files(first, tmp_path) == {"a.cc", "b.cc", "d.cc"}
    assert deep.changed_files("HEAD", tmp_path) == {"a.cc", "d.cc"}


def test_a_changed_header_stands_for_the_sources_that_include_it():
    texts = {"a.cc": '#include "a.h"\n', "b.cc": '#include "b.h"\n', "c.cc": '#include "a.h"\n', "a.h": ""}
    assert deep.choose_sources(["a.cc", "b.cc", "c.cc"], texts, {"a.h", "b.cc"}) == ["b.cc", "a.cc", "c.cc"]


def test_a_large_change_is_cut_to_12_sources_of_all_folders():
    names = sorted(f"{folder}/{i:03}.cc" for folder in "abcd" for i in range(100))
    chosen = deep.choose_sources(names, dict.fromkeys(names, ""), set(names))
    assert len(chosen) == 12
    assert [sum(name.startswith(folder) for name in chosen) for folder in "abcd"] == [3, 3, 3, 3]


def test_clang_tidy_reports_a_member_that_is_read_without_its_mutex(tmp_path):
    text = """#include "horo/base/mutex.h"
namespace horo {
class Counter {
 public:
  int get() {
    %
    return value_;
  }

 private:
  Mutex mutex_;
  int value_ GUARDED_BY(mutex_) = 0;
};
int count(Counter& counter) { return counter.get(); }
}  // namespace horo
"""
    cmake = "cmake_minimum_required(VERSION 3.25)\nproject(a CXX)\nset(CMAKE_EXPORT_COMPILE_COMMANDS ON)\n"
    cmake += f"add_library(a good.cc bad.cc)\ninclude_directories({ROOT})\nset(CMAKE_CXX_STANDARD 20)\n"
    cmake += "target_compile_features(a PRIVATE cxx_std_20)\ntarget_compile_options(a PRIVATE -Wthread-safety)\n"
    cmake += "add_custom_target(generated_headers)\n"
    (tmp_path / "CMakeLists.txt").write_text(cmake)
    shutil.copy(ROOT / ".clang-tidy", tmp_path)
    texts = {"good.cc": text.replace("%", "MutexLock lock(mutex_);"), "bad.cc": text.replace("%", "")}
    for name, content in texts.items():
        (tmp_path / name).write_text(content)
    findings = deep.check_clang_tidy(texts, lambda name: True, root=tmp_path)
    assert [(name, line) for name, line, _ in findings] == [("bad.cc", 7)]
    assert "requires holding mutex" in findings[0][2]
