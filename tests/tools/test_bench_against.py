"""horo-bench: horo and other libraries in turns. No test judges a time."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from launching import DEADLINE_S, HORO, ROOT, clean_environment, horo

sys.path.insert(0, str(ROOT / "tools"))

import hosts  # noqa: E402
import ranks  # noqa: E402

PLACES = [pathlib.Path(HORO).resolve().parents[2] / "bench/peers", ROOT / "build/release/bench/peers"]
PEERS = next((place for place in PLACES if (place / "libharness.so").exists()), None)
BENCH = PEERS and str(PEERS.parent / "horo-bench")
QUICK = ["--rounds", "2", "--wait", "0"]

pytestmark = pytest.mark.skipif(PEERS is None, reason="no build tree has bench/peers: tools/test release")


def need_peer(peer):
    if peer == "gloo":
        if importlib.util.find_spec("torch") is None:
            pytest.skip("torch is not installed")
        return
    launcher = "mpiexec.hydra" if peer == "mpich" else "mpirun.openmpi"
    if not (PEERS / f"mpi_{peer}").exists() or not shutil.which(launcher):
        pytest.skip(f"{peer} is not installed: tools/setup peers")


def horo_bench(*options, env=()):
    command = [BENCH, *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=clean_environment(env))


def forks():
    """Variables with which the ranks of Gloo are forked from a process that has imported torch."""
    return {"PYTHON": ranks.start.python(), "OMP_NUM_THREADS": "1"}


def compare(*options, peers=PEERS, env=()):
    return horo_bench(*options, *QUICK, "--peers", peers, env=forks() | dict(env))


@pytest.mark.parametrize("peer", ["openmpi", "mpich", "gloo"])
def test_horo_and_a_peer_take_turns_and_all_results_are_right(peer, tmp_path):
    need_peer(peer)
    file, csv = tmp_path / "results.json", tmp_path / "results.csv"
    done = compare("--against", peer, "--sizes", "8,64K", "--json", file, "--csv", csv)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(file.read_text())
    rows = [(row["library"], row["path"], row["bytes"]) for row in report["rows"]]
    sides = [(peer, "default"), ("horo", "shm-bucket"), ("horo", "shm-user")]
    assert rows == [(*side, size) for size in (8, 65536) for side in sides]
    for row in report["rows"]:
        assert row["rounds"] == len(row["times_us"]) == len(row["limit_us"]) == 2 and row["wrong"] == 0
        assert min(row["times_us"]) > 0 and row["limit_fraction"] > 0
        assert ("ratio_to_best_peer" in row) == ("memory_beyond_buffers_mib" in row) == (row["library"] == "horo")
    assert set(report["machine"]["versions"]) == {"horo", peer, "horo-shm-bucket", "horo-shm-user"}
    assert len(csv.read_text().splitlines()) == 1 + len(rows)


COLLECTIVES = ["broadcast", "reduce", "reduce_scatter", "all_gather", "gather", "scatter", "all_to_all"]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_of_every_library_gives_right_results(collective):
    peers = [peer for peer in ("openmpi", "mpich") if (PEERS / f"mpi_{peer}").exists()] or ["gloo"]
    for peer in peers:
        need_peer(peer)
    done = compare("--against", ",".join(peers), "--collective", collective, "--sizes", "1000,100K")
    assert done.returncode == 0 and "every checked result is right" in done.stdout, done.stdout + done.stderr


def test_peers_may_be_a_positional_argument():
    need_peer("gloo")
    done = compare("gloo", "--sizes", "8")
    assert done.returncode == 0 and "every checked result is right" in done.stdout, done.stdout + done.stderr


def test_horo_bench_against_names_the_program_that_has_it():
    for words in (["--against", "gloo"], ["--against=gloo", "--sizes", "8"]):
        done = horo("bench", *words)
        assert done.returncode == 2 and "build/release/bench/horo-bench" in done.stderr, done.stdout + done.stderr


def test_paths_over_tcp_and_the_c_abi_are_compared_as_well():
    need_peer("gloo")
    done = compare("--against", "gloo", "--paths", "tcp,abi,abi-1000,abi-1000-bucket", "--sizes", "8,16K")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "without horo-abi-1000: no fewer elements than tensors" in done.stdout


def test_horo_over_mpi_is_compared_with_open_mpi_itself():
    need_peer("openmpi")
    if not (PEERS / "driver_group").exists() or not (PEERS / "../../bindings/c/libhoro_mpi.so").resolve().exists():
        pytest.skip("the build tree has no plug-in: tools/setup peers")
    done = compare("--against", "openmpi", "--paths", "mpi,mpi-fast", "--sizes", "8,300K", "--ranks", "2,3")
    assert done.returncode == 0 and "every checked result is right" in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(hosts.missing() is not None, reason=str(hosts.missing()))
def test_contestants_on_two_hosts_have_right_results():
    peers = [peer for peer in ("openmpi-tcp", "gloo") if peer == "gloo" or (PEERS / "mpi_openmpi").exists()]
    need_peer("gloo")
    what = [",".join(peers), "--paths", "tcp", "--ranks", "2,3", "--sizes", "8,64K", "--peers", PEERS]
    command = [ROOT / "bench/between_hosts", *what, *QUICK]
    env = {**os.environ, "HORO_BENCH_EXE": BENCH, **forks()}
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=env)
    assert done.returncode == 0 and "every checked result is right" in done.stdout, done.stdout + done.stderr
    assert "2 ranks on 2 hosts" in done.stdout and "3 ranks on 2 hosts" in done.stdout


def fake_gloo(folder, body):
    """A folder of peers with a gloo.py of the test."""
    folder.mkdir()
    (folder / "gloo.py").write_text(body)
    return folder


WRONG = f"""
import ctypes, os, sys
import torch
sys.path.insert(0, {str(ROOT / "bench/peers")!r})
import gloo

class Wrong(gloo.GlooDriver):
    def prepare(self, user, task, error):
        self.result = ctypes.cast(task[0].output, ctypes.POINTER(ctypes.c_float))
        return super().prepare(user, task, error)

    def run(self, user):
        failed = super().run(user)
        self.result[0] += float(os.environ["PLANTED"])
        return failed

sys.exit(gloo.main(Wrong()))
"""


@pytest.mark.parametrize("planted", [0, 1])
def test_a_wrong_result_is_reported(planted, tmp_path):
    need_peer("gloo")
    peers = fake_gloo(tmp_path / "peers", WRONG)
    env = {"PLANTED": str(planted), "HARNESS_LIBRARY": str(PEERS / "libharness.so")}
    done = compare("--against", "gloo", "--sizes", "8", "--paths", "shm-user", peers=peers, env=env)
    assert done.returncode == planted, done.stdout + done.stderr
    assert ("WRONG RESULTS: gloo, 8: 8 elements" in done.stdout) == bool(planted)


def test_a_contestant_that_dies_is_named_with_its_last_lines(tmp_path):
    peers = fake_gloo(tmp_path / "peers", "import sys\nsys.exit('no luck today')\n")
    done = compare("--against", "gloo", "--sizes", "8", peers=peers)
    assert done.returncode == 1
    assert "gloo with 2 ranks" in done.stderr and "no luck today" in done.stderr


def test_a_missing_peer_is_reported_with_the_command_that_installs_it(tmp_path):
    for peer in ("openmpi", "mpich", "gloo"):
        done = compare("--against", peer, peers=tmp_path / "nothing")
        assert done.returncode == 2
        assert f"horo-bench: {peer}: there is no " in done.stderr and "tools/setup peers" in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--against", "nccl"],
        ["--against", "gloo,gloo"],
        ["--against", "gloo", "--sizes", "8B"],
        ["--against", "gloo", "--paths", "shm"],
        ["--against", "gloo", "--dtype", "float31"],
        ["--against", "gloo", "--ranks", "0"],
        ["--against", "gloo", "--collective", "barrier"],
        ["--sizes", "8"],
        [],
    ],
)
def test_invalid_options_are_refused(options):
    done = horo_bench(*options)
    assert done.returncode == 2 and done.stderr.strip(), done.stdout + done.stderr
