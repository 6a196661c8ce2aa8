"""horo doctor as a program: its report on this machine, also with planted problems."""

import json
import os
import resource
import subprocess

import pytest
from launching import HORO

DEADLINE_S = 180
SECTIONS = {
    "horo": {"version", "compiler", "kernels", "tcp", "shared_memory", "mpi", "cuda", "nccl"},
    "found": {"cuda_driver", "nccl", "mpi", "mpirun", "srun", "torchrun"},
    "machine": {"kernel", "cores_online", "cores_usable", "affinity", "memory_bytes", "cgroup_version", "shm_bytes"},
    "limits": {"open_files_soft", "processes_soft", "locked_memory_bytes_soft", "core_bytes_soft"},
    "interfaces": {"lo"},
    "network": {"host_name", "host_name_is", "one_host", "other_hosts", "loopback_works"},
    "start": {"launcher", "rank", "size", "meet_by", "job_key"},
    "settings": {"HORO_BUCKET_BYTES", "HORO_LOG_LEVEL"},
    "check": {"all_reduce", "took_us"},
}


def doctor(*options, files=None, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HORO_")}
    ill = None if files is None else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    command = [HORO, "doctor", *options]
    environment.update(variables)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, preexec_fn=ill)


def problems(**ill):
    done = doctor("--json", **ill)
    found = json.loads(done.stdout)["problems"]
    assert done.returncode == (1 if found else 0)
    assert all(one["what"] and one["advice"] for one in found)
    return found


def test_json_has_every_section_and_the_check_is_right():
    told = json.loads(doctor("--json").stdout)
    for section, names in SECTIONS.items():
        assert names <= set(told[section]), section
    assert told["check"]["all_reduce"] == "right"
    assert told["machine"]["cores_usable"] == len(os.sched_getaffinity(0))


def test_text_has_the_same_facts():
    done = doctor()
    assert all(f"\n{section}\n" in "\n" + done.stdout for section in SECTIONS)
    assert "all_reduce  right" in done.stdout


def test_few_descriptors_are_a_problem_with_advice():
    found = problems(files=16)
    assert any("RLIMIT_NOFILE" in one["what"] and "ulimit -n" in one["advice"] for one in found)


def test_even_fewer_descriptors_are_survived():
    found = problems(files=5)
    assert any("all_reduce" in one["what"] for one in found)


@pytest.mark.parametrize(
    "variables, what",
    [
        ({"HORO_BUKET_BYTES": "1"}, "did you mean HORO_BUCKET_BYTES?"),
        ({"HORO_DEADLINE_MS": "soon"}, 'HORO_DEADLINE_MS="soon": expected a whole number'),
        ({"HORO_LOG_LEVEL": "loud"}, "expected trace, debug, info, warning, error or off"),
        ({"HORO_ADDR": "no-such-host.invalid:4000"}, "HORO_ADDR=no-such-host.invalid:4000"),
        ({"HORO_KEY_FILE": "/no/such/key"}, "No such file"),
        ({"HORO_RANK": "0", "HORO_SIZE": "2"}, "HORO_ADDR is not set"),
    ],
)
def test_a_wrong_setting_is_a_problem(variables, what):
    assert any(what in one["what"] for one in problems(**variables))


LIBRARIES = {
    "libcuda.so.1": "int cuDriverGetVersion(int* version) { *version = 12040; return 0; }",
    "libnccl.so.2": "int ncclGetVersion(int* version) { *version = 22907; return 0; }",
    "libmpi.so.40": """
int MPI_Get_library_version(char* text, int* length) {
  const char* all = "Open MPI v9.8.7, package: made up";
  for (*length = 0; all[*length]; ++*length) text[*length] = all[*length];
  return 0;
}""",
}


def make_library(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text(LIBRARIES[path.name])
    command = ["g++", "-x", "c", "-shared", "-fPIC", "-o", str(path), str(source)]
    subprocess.run(command, check=True, timeout=DEADLINE_S)


def test_libraries_are_found_with_version_and_path(tmp_path):
    wheel = tmp_path / "venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2"
    made = {"cuda_driver": tmp_path / "libcuda.so.1", "nccl": wheel, "mpi": tmp_path / "libmpi.so.40"}
    for path in made.values():
        make_library(path)
    done = doctor("--json", LD_LIBRARY_PATH=str(tmp_path), VIRTUAL_ENV=str(tmp_path / "venv"))
    found = json.loads(done.stdout)["found"]
    versions = {"cuda_driver": "12.4", "nccl": "2.29.7", "mpi": "Open MPI v9.8.7"}
    uses = {
        "cuda_driver": "libhoro_cuda.so uses it",
        "nccl": "HORO_GPU_BACKEND=nccl or auto uses it",
        "mpi": "HORO_BACKEND=mpi uses it, if it is Open MPI",
    }
    assert {name: found[name] for name in made} == {
        name: f"{versions[name]}, {path}; {uses[name]}" for name, path in made.items()
    }


def test_a_library_that_cannot_be_loaded_is_reported(tmp_path):
    broken = tmp_path / "lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2"
    broken.parent.mkdir(parents=True)
    broken.write_text("no library")
    found = json.loads(doctor("--json", VIRTUAL_ENV=str(tmp_path), PATH="/nowhere").stdout)["found"]
    assert f"{broken} cannot be loaded" in found["nccl"]
    assert found["mpirun"] is None


def test_settings_prints_the_page_of_the_documentation(request):
    page = (request.config.rootpath / "docs/settings.md").read_text()
    assert doctor("--settings").stdout == page
