"""The package without torch: imports, the structs of the C ABI, horo.py in the repository root."""

import ctypes
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from horo import _native
from horo.checkpoint import library

PROGRAM = """
#include <stddef.h>
#include <stdio.h>
#include "horo_c.h"
int main(void) {{
{lines}
}}
"""


def python(code, **options):
    env = {name: value for name, value in os.environ.items() if name not in ("HORO_RANK", "HORO_SIZE")}
    env |= options.pop("env", {})
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=180, **options)


@pytest.mark.parametrize(
    "name, struct",
    [
        ("horo_topology", _native.Topology),
        ("horo_tensor_spec", _native.TensorSpec),
        ("horo_result", _native.Result),
        ("horo_place", _native.Place),
        ("horo_submission", _native.Submission),
        ("horo_unit", _native.Unit),
        ("horo_set_info", _native.SetInfo),
        ("horo_op", _native.Op),
        ("horo_codec", _native.Codec),
        ("horo_step", _native.Step),
        ("horo_ended_step", _native.EndedStep),
        ("horo_checkpoint_tensor", library.TensorStruct),
        ("horo_save_options", library.SaveOptions),
        ("horo_save_progress", library.SaveProgress),
    ],
)
def test_structs_have_the_layout_of_the_header(name, struct, root, tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    fields = [field[0] for field in struct._fields_]
    prints = [f'printf("%zu\\n", offsetof({name}, {field}));' for field in fields]
    source = tmp_path / "offsets.c"
    source.write_text(PROGRAM.format(lines="\n".join([*prints, f'printf("%zu\\n", sizeof({name}));'])))
    subprocess.run([compiler, "-I", root / "bindings/c", source, "-o", tmp_path / "offsets"], check=True, timeout=180)
    printed = subprocess.run([tmp_path / "offsets"], check=True, capture_output=True, text=True, timeout=180).stdout
    expected = [getattr(struct, field).offset for field in fields] + [ctypes.sizeof(struct)]
    assert [int(line) for line in printed.split()] == expected


def header_text(root):
    return "".join(path.read_text() for path in sorted((root / "bindings/c/horo_c").glob("*.h")))


def test_the_header_includes_all_of_its_parts(root):
    included = re.findall(r'^#include "horo_c/(\w+\.h)"', (root / "bindings/c/horo_c.h").read_text(), re.M)
    assert included == sorted(path.name for path in (root / "bindings/c/horo_c").iterdir())


def test_every_function_of_the_header_is_bound(root):
    header = header_text(root)
    declared = {word.split("(")[0].lstrip("*") for line in header.splitlines() if line.startswith("HORO_API")
                for word in line.split() if "(" in word and word.lstrip("*").startswith("horo_")}  # fmt: skip
    assert declared == {name for part in (_native, library) for name in (*part.QUICK, *part.SLOW)}


def test_numbers_are_those_of_the_header(root):
    header = header_text(root)
    numbers = dict(re.findall(r"\bHORO_([A-Z0-9_]+) = (-?\d+)", header))
    words = "FAST CANONICAL OK".split()  # Python does not use them, or has other names
    parts = {**vars(_native), **vars(library)}
    assert {name: parts[name] for name in numbers if name not in words} == {
        name: int(number) for name, number in numbers.items() if name not in words
    }


def test_the_version_has_one_source(root):
    (version,) = re.findall(r"^project\(horo VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text(), re.M)
    assert _native.version() == version
    assert importlib.metadata.version("horo") == version


def test_it_works_without_torch():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None; import horo; horo.init(); "
        "assert (horo.rank(), horo.size()) == (0, 1); assert 'control' in horo.counters(); horo.shutdown()"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    done = python("import sys; sys.modules['torch'] = None; import horo.torch")
    assert "horo.torch needs PyTorch" in done.stderr
    done = python("import sys; sys.modules['numpy'] = None; import horo.numpy")
    assert "horo.numpy needs NumPy" in done.stderr
    done = python(
        "import sys; sys.modules['torch'] = None; import numpy, horo.numpy as h; h.init(); "
        "assert h.allreduce(numpy.ones(2)).tolist() == [1, 1]"
    )
    assert done.returncode == 0, done.stderr


SIGNATURES = """
import inspect, json, horo.numpy, horo.torch
public = lambda module: {n: v for n, v in vars(module).items() if n[0] != "_" and inspect.isroutine(v)}
found = [{n: str(inspect.signature(v)) for n, v in public(m).items()} for m in (horo.numpy, horo.torch)]
print(json.dumps(found))
"""


def test_numpy_and_torch_have_the_same_calls_and_the_page_lists_them(root):
    done = python(SIGNATURES)
    assert done.returncode == 0, done.stderr
    of_numpy, of_torch = json.loads(done.stdout)
    shared = of_numpy.keys() - {"init"}
    assert {name: of_torch[name] for name in shared} == {name: of_numpy[name] for name in shared}
    more = {
        "DistributedOptimizer",
        "audit",
        "ddp_hook",
        "lr_scale",
        "metric_average",
        "sparse_allreduce_async",
        "allgather_object",
        "broadcast_object",
        "clip_grad_norm_",
        "empty",
        "state_as_saved",
    }
    assert of_torch.keys() - of_numpy.keys() == more | {"broadcast_parameters", "broadcast_optimizer_state"}
    listed = set(re.findall(r"`(\w+)\(", (root / "docs/python.md").read_text()))
    assert {name.replace("_async", "") for name in shared if "_async" in name} - listed == set()


def test_the_root_of_the_repository_hands_over_to_the_installed_package(root):
    done = python("import horo, horo.torch; print(horo.__version__, horo.torch.__file__)", cwd=root)
    assert done.returncode == 0, done.stderr
    assert _native.version() in done.stdout and str(root / "horo") not in done.stdout


def test_the_root_of_the_repository_without_an_install_says_what_to_do(root):
    bare = "import sys; sys.path[:] = [''] + [p for p in sys.path if 'packages' not in p and 'bindings' not in p]; "
    done = python(bare + "import horo", cwd=root, env={"PYTHONPATH": ""})
    assert done.returncode != 0
    assert "ImportError: horo is not installed" in done.stderr and "pip install ." in done.stderr


def test_a_missing_library_is_named():
    done = python("import horo", env={"HORO_LIBRARY": "/nowhere/libhoro.so"})
    assert "HORO_LIBRARY=/nowhere/libhoro.so" in done.stderr and "ImportError" in done.stderr


INTERRUPTED = """
from horo import _session_start
freed = []
_session_start.slow.horo_free = freed.append
start = _session_start.SessionStart([], None)
begin = start._thread.start
def interrupted():
    begin()
    raise KeyboardInterrupt
start._thread.start = interrupted
try:
    start.join()
except KeyboardInterrupt:
    start._thread.join()
assert freed == [start._pointer] and freed[0], freed
"""


def test_an_init_that_is_interrupted_at_its_start_is_taken_back():
    done = python(INTERRUPTED)
    assert done.returncode == 0, done.stderr


def test_a_missing_rank_is_an_error_after_the_start_timeout():
    world = {"HORO_RANK": "0", "HORO_SIZE": "2", "HORO_ADDR": "127.0.0.1:0", "HORO_START_TIMEOUT_MS": "500"}
    done = python("import horo; horo.init()", env=world)
    assert done.returncode != 0
    assert "PeerLost" in done.stderr or "ValueError" in done.stderr


def test_meaningless_calls_of_the_c_abi_are_refused(run_program):
    run_program("bad_calls", 1)
