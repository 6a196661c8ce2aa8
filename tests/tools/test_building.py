"""The build and the scripts around it: what is missing is named at once, and the minutes that each part may take."""

import os
import pathlib
import re
import shutil
import stat
import subprocess
import time

import pytest
from launching import HORO

ROOT = pathlib.Path(__file__).resolve().parents[2]
NINJA = shutil.which("ninja")


def run(*words, **options):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=120, **options)


def configure(folder, *options, env=()):
    words = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={NINJA}", *options]
    return run(*words, env=os.environ | dict(env))


def missing_packages(done):
    assert done.returncode == 1 and done.stderr.count("CMake Error") == 1, done.stderr
    return re.search(r"Debian and Ubuntu: apt-get install (.*)", done.stderr).group(1).split()


def debian_packages():
    return re.search(r"\ndebian_packages=\((.*?)\n\)", (ROOT / "tools/setup").read_text(), re.S).group(1).split()


@pytest.mark.skipif(NINJA is None, reason="no ninja")
def test_everything_that_is_missing_is_named_at_once_before_anything_is_compiled(tmp_path):
    nowhere = "-DCMAKE_IGNORE_PATH=/usr/include;/usr/bin;/bin"
    done = configure(tmp_path / "tests", nowhere, env={"CXX": "/no/compiler"})
    packages = missing_packages(done)
    assert set(packages) <= set(debian_packages()) and packages[0] == "g++" and {"libgtest-dev"} < set(packages)
    assert "Other systems: these libraries" in done.stderr and not list(tmp_path.rglob("*.o"))
    # The wheel needs no tests; a build without the horo executable needs no gRPC.
    wheel = missing_packages(configure(tmp_path / "wheel", nowhere, "-DHORO_BUILD_TESTS=OFF"))
    assert "libgtest-dev" not in wheel and "g++" not in wheel and "libgrpc++-dev" in wheel
    library = ["-DHORO_BUILD_TESTS=OFF", "-DHORO_BUILD_TOOLS=OFF"]
    assert set(missing_packages(configure(tmp_path / "library", nowhere, *library))) < set(wheel) - {"libgrpc++-dev"}


@pytest.mark.skipif(NINJA is None, reason="no ninja")
def test_a_library_at_a_place_that_the_user_names_is_not_missing(tmp_path):
    header = tmp_path / "ssl/include/openssl/evp.h"
    header.parent.mkdir(parents=True)
    header.touch()
    nowhere = ["-DCMAKE_IGNORE_PATH=/usr/include;/usr/bin;/bin", f"-DOPENSSL_ROOT_DIR={tmp_path}/ssl"]
    named = [f"-DCLI11_DIR={tmp_path}", f"-Dnlohmann_json_ROOT={tmp_path}"]
    packages = missing_packages(configure(tmp_path / "build", *nowhere, *named, env={"gRPC_ROOT": str(tmp_path)}))
    assert not set(packages) & {"libssl-dev", "libcli11-dev", "nlohmann-json3-dev", "libgrpc++-dev"}
    assert {"libev-dev", "libprotobuf-dev"} <= set(packages)


@pytest.mark.skipif(NINJA is None, reason="no ninja")
def test_the_plug_in_for_cuda_is_built_without_kernels_where_there_is_no_nvcc(tmp_path, fake_cuda):
    library = ["-DHORO_BUILD_TESTS=OFF", "-DHORO_BUILD_TOOLS=OFF"]
    done = configure(tmp_path, *library, "-DHORO_NVCC=OFF")
    assert done.returncode == 0 and "libhoro_cuda.so is built without kernels: no nvcc" in done.stdout, done.stderr
    assert run("ninja", "-C", tmp_path, "horo_cuda").returncode == 0
    plugin = {"HORO_CUDA_LIBRARY": str(tmp_path / "bindings/c/libhoro_cuda.so")}
    driver = {"LD_LIBRARY_PATH": str(fake_cuda.parent / "driver")}
    done = run(HORO, "bench", "cuda", env=os.environ | plugin | driver)
    assert "this libhoro_cuda.so was built without kernels, because the build did not find nvcc" in done.stderr


def test_the_packages_that_can_be_missing_are_those_that_docs_install_names():
    page = (ROOT / "docs/install.md").read_text()
    command = re.search(r"apt-get install --no-install-recommends(.*?)\n\n", page, re.S)
    named = set(command.group(1).replace("\\", " ").split())
    asked = set(re.findall(r"^ *horo_needs\(\"[^\"]+\" (\S+)", (ROOT / "requirements.cmake").read_text(), re.M))
    assert asked - {"libgtest-dev", "libgmock-dev"} <= named and len(asked) > 10


@pytest.mark.long
@pytest.mark.skipif(NINJA is None or shutil.which("ccache") is None, reason="no ninja or no ccache")
def test_the_build_of_the_wheel_finds_the_objects_of_a_preset_in_the_compiler_cache(tmp_path):
    (tmp_path / "ccache.conf").write_text("")
    env = {"CCACHE_DIR": str(tmp_path / "cache"), "CCACHE_CONFIGPATH": str(tmp_path / "ccache.conf")}
    preset = (ROOT / "build/test_preset", ["-DCMAKE_BUILD_TYPE=Release"])
    wheel = (ROOT / "build/test_wheel", [*preset[1], "-DHORO_BUILD_TESTS=OFF", "-DHORO_STATIC_LIBRARIES=ON"])
    try:
        for folder, options in (preset, wheel):
            assert configure(folder, *options).returncode == 0
            target = "ring/CMakeFiles/ring_mpi.dir/Unity/unity_0_cxx.cxx.o"
            built = run("ninja", "-C", folder, target, env=os.environ | env)
            assert built.returncode == 0, built.stdout + built.stderr
    finally:
        for folder, _ in (preset, wheel):
            shutil.rmtree(folder, ignore_errors=True)
    counted = run("ccache", "--print-stats", env=os.environ | env).stdout
    assert re.search(r"^direct_cache_hit\t1$", counted, re.M) and re.search(r"^cache_miss\t1$", counted, re.M), counted


def budgets():
    """Minutes by part, as tools/test has them."""
    table = re.search(r"budget_minutes=\((.*?)\n\)", (ROOT / "tools/test").read_text(), re.S).group(1)
    return {part: int(minutes) for part, minutes in re.findall(r"\[(\S+)\]=(\d+)", table)}


def test_contributing_states_the_minutes_of_each_part():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    stated = {part: int(minutes) for part, minutes in re.findall(r"^\| `([\w-]+)` \| (\d+) \|", text, re.M)}
    assert stated == budgets()
    plain = sum(stated[part] for part in ("setup", "release", "tidy", "python"))
    assert plain <= 25 and plain - stated["setup"] <= 20 and sum(stated.values()) <= 50


def test_a_part_is_printed_beside_its_budget():
    done = run(ROOT / "tools/test", "setup", env=os.environ | {"TEST_ENDS_BY": ""})
    line = rf"^setup +passed +\d+ s of +{60 * budgets()['setup']} s$"
    assert done.returncode == 0 and re.search(line, done.stdout, re.M)


def test_a_part_for_which_there_is_no_time_is_left_out_and_named():
    ends = int(time.time()) + 60 * 2 * budgets()["deep"] - 30
    done = run(ROOT / "tools/test", "deep", env=os.environ | {"TEST_ENDS_BY": str(ends)})
    assert done.returncode == 0 and re.search(r"^deep +LEFT OUT, there is no time for it$", done.stdout, re.M)


def test_words_that_are_no_parts_are_refused_before_anything_runs():
    for words, expected in (
        (["everything"], 'no part "everything"'),
        (["setup", "tiddy"], 'no part "tiddy"'),
        (["sanitizers", "tidy"], "sanitizers names several parts, and no word follows it"),
        (["tidy", "all"], 'no part "all"'),
    ):
        done = run(ROOT / "tools/test", *words)
        assert done.returncode == 2 and expected in done.stderr and done.stdout == ""


@pytest.mark.parametrize("plain, sanitizers", [(0, 0), (1, 0), (0, 1)])
def test_ci_runs_both_and_fails_if_one_does_and_ends_with_the_summary_of_pytest(tmp_path, plain, sanitizers):
    (tmp_path / ".ci").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "build").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    script = tmp_path / "tools/test"
    script.write_text(f"""#!/bin/sh
if [ "$1" = sanitizers ]; then code={sanitizers} line="sanitizers"; else code={plain} line="1185 passed in 9 s"; fi
echo "$line" | tee build/tests.txt
exit $code
""")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    done = run(tmp_path / ".ci/run")
    assert done.returncode == max(plain, sanitizers)
    assert done.stdout.split("\n") == ["1185 passed in 9 s", "sanitizers", "", "1185 passed in 9 s", ""]
