"""init_process_group("horo"): how ranks meet."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import ranks

HERE = pathlib.Path(__file__).resolve().parent


def environment():
    """For ranks that are forked."""
    return os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("size", [1, 2])
def test_a_group_needs_no_import(launch, size):
    launch("default_group", size)


def test_the_ranks_of_horo_run_meet_as_those_of_horo_init(executable):
    program = str(HERE / "programs/default_group.py")
    command = [executable, "run", "-n", "2", ranks.start.python(), program]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_store_under_horo_run_is_complete_and_closed_to_strangers(executable):
    command = [executable, "run", "-n", "2", ranks.start.python(), str(HERE / "programs/store.py")]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr


OTHER_GROUPS = """
import os, socket, torch, torch.distributed as dist, torch.multiprocessing as workers
def meet(rank, size, port):
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    ones = torch.ones(1)
    dist.all_reduce(ones)
    assert ones.item() == size
    dist.destroy_process_group()
if __name__ == "__main__":
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    if os.environ["RANK"] == "0":
        workers.spawn(meet, args=(2, port), nprocs=2)
    else:
        meet(0, 1, port)
    print("met")
"""


def test_a_script_may_make_groups_of_other_processes_under_horo_run(executable, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(OTHER_GROUPS)
    command = [executable, "run", "-n", "2", ranks.start.python(), script]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert ended.stdout.count("met") == 2, ended.stdout + ended.stderr


def test_the_entry_point_takes_less_than_a_millisecond():
    code = (
        "import torch, time, horo_torch_backend as h; b = time.perf_counter(); h.register(); "
        "print(time.perf_counter() - b); from torch.distributed import Backend; assert Backend.HORO == 'horo'; "
        "import sys; assert 'horo' not in sys.modules"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert float(ended.stdout) < 0.001


def test_horo_is_the_default_of_cpu_tensors(launch):
    launch("named", 2, arguments=[""], env={"HORO_TORCH_DEFAULT": "1"})


def test_horo_run_replaces_gloo(executable):
    program = [ranks.start.python(), str(HERE / "programs/named.py"), "gloo", ""]
    command = [executable, "run", "-n", "2", "--replace-gloo", *program]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_horo_init_and_the_default_group_share_a_session(launch):
    launch("shared", 2)


def test_groups_of_horo_run_beside_a_default_group_of_gloo(launch):
    launch("beside_gloo", 3)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_the_ranks_of_mpirun_meet_as_those_of_horo_init():
    options = ["--allow-run-as-root", "--oversubscribe", "-n", "2"]
    command = ["mpirun", *options, ranks.start.python(), str(HERE / "programs/default_group.py")]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_ranks_of_several_hosts_need_a_key(launch, tmp_path):
    launch("two_hosts", 2, arguments=["refused", tmp_path / "store"])
    launch("two_hosts", 2, arguments=["joined"], env={"HORO_TRUST_STORE": "1"})
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    launch("two_hosts", 2, arguments=["joined"], env={"HORO_KEY_FILE": str(key)})


def test_groups_of_some_ranks(launch):
    launch("groups", 4)
