"""horo bench: the checks of its results."""

import json
import os
import re
import subprocess
import sys

import pytest
from launching import HORO, ROOT

# Of an old driver, or of a build without nvcc.
NO_KERNELS = (
    r"cuda:0 has no kernels: (the kernels are compiled for CUDA 1[23]\.\d, and the NVIDIA driver is for CUDA 11\.8: "
    r"install a driver for CUDA 1[23]|this libhoro_cuda\.so was built without kernels)"
)


def test_bench_allreduce_checks_every_size_it_prints():
    sizes = ["--min", "8", "--max", "4K", "--rounds", "2"]
    done = subprocess.run([HORO, "bench", "allreduce", *sizes], capture_output=True, text=True, timeout=180)
    rows = [line.split() for line in done.stdout.splitlines() if line[:1] == " " and line.split()[0].isdigit()]
    assert done.returncode == 0, done.stdout + done.stderr
    assert [int(row[0]) for row in rows] == [8 << i for i in range(10)] and all(row[8] == "0" for row in rows)


def test_bench_wire_matches_every_schedule_and_the_kernel():
    done = subprocess.run([HORO, "bench", "wire", "--ranks", "2,3"], capture_output=True, text=True, timeout=300)
    rows = [line.split() for line in done.stdout.splitlines() if line[:1] == " " and line.split()[0].isdigit()]
    assert done.returncode == 0 and all(row[-1] == "ok" for row in rows), done.stdout + done.stderr
    assert {row[0] for row in rows} == {"2", "3"} and len({tuple(row[1:3]) for row in rows}) >= 18
    assert any(row[0] == "3" and row[2] == "hierarchical" and row[-3] != "-" for row in rows)


def test_bench_agree_sends_no_names_in_the_steady_state():
    small = ["--ranks", "2", "--tensors", "100", "--steps", "10"]
    done = subprocess.run([HORO, "bench", "agree", *small], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "messages with names in all these steps 0," in done.stdout


def test_bench_net_has_every_size_its_fit_and_the_streams(tmp_path):
    file = tmp_path / "net.json"
    command = [HORO, "bench", "net", "--rounds", "1", "--max", "64K", "--pause", "0.01", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=360)
    assert done.returncode == 0 and "ONE HOST" in done.stdout, done.stdout + done.stderr
    report = json.loads(file.read_text())
    assert [row["bytes"] for row in report["messages"]] == [8, 64, 256, 1024, 4096, 16384, 65536]
    assert report["beta_s_per_byte"] > 0 and len(report["streams"]) == 4 and len(report["after_pause_s"]) == 1
    assert all(len(row["horo_gbit_per_s"]) == 1 and row["horo_gbit_per_s"][0] > 0 for row in report["streams"])


def test_bench_net_is_between_two_ranks():
    command = [HORO, "run", "-n", "3", HORO, "bench", "net"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 2 and "bench net: 3 ranks: expected two, one on each host" in done.stderr


def test_bench_kernels_finds_every_instruction_set_right():
    sizes = ["--rounds", "1", "--cache", "4104", "--memory", "64K"]
    done = subprocess.run([HORO, "bench", "kernels", *sizes], capture_output=True, text=True, timeout=180)
    rows = [line.split() for line in done.stdout.splitlines() if line[:1] == " "][1:]
    assert done.returncode == 0 and len(rows) == 2 * 7 * 4, done.stdout + done.stderr
    assert all(row[-1] == "right" for row in rows)


def bench_cuda(library, *options, **variables):
    command = [HORO, "bench", "cuda", "--bytes", "1M", "--elements", "100", "--rounds", "1", *options]
    env = os.environ | {"HORO_CUDA_LIBRARY": str(library)} | variables
    return subprocess.run(command, capture_output=True, text=True, timeout=180, env=env)


def test_bench_cuda_finds_the_bits_of_the_cpu_and_measures_each_kernel(fake_cuda, tmp_path):
    done = bench_cuda(fake_cuda, "--json", tmp_path / "cuda.json")
    assert done.returncode == 0 and ", 0 differ" in done.stdout, done.stdout + done.stderr
    report = json.loads((tmp_path / "cuda.json").read_text())
    assert report["checked"] > 2_000 and report["wrong"] == [] and report["device"] == "fake device 0"
    assert {"copy", "pack of 1000", "sum of 8 float32"} < set(report["gb_per_s"])


def test_bench_cuda_says_why_a_device_has_no_kernels(fake_cuda):
    done = bench_cuda(fake_cuda, HORO_FAKE_CUDA_FAIL="load_kernels")
    assert done.returncode == 2 and "cuda:0 has no kernels: the fake has no kernels" in done.stderr
    plugin = fake_cuda.parents[2] / "bindings/c/libhoro_cuda.so"
    done = bench_cuda(plugin, LD_LIBRARY_PATH=str(fake_cuda.parent / "driver"), FAKE_DRIVER_VERSION="11080")
    assert done.returncode == 2 and re.search(NO_KERNELS, done.stderr), done.stderr


def test_bench_checks_every_collective_in_place_and_apart(tmp_path):
    file = tmp_path / "results.csv"
    for collective in ("broadcast", "reduce", "reduce_scatter", "all_gather", "gather", "scatter", "all_to_all"):
        sizes = ["--min", "1000", "--max", "2000", "--rounds", "2", "--ranks", "3", "--dtype", "float32,int64"]
        command = [HORO, "bench", collective, *sizes, "--transport", "shm", "--csv", file]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = [line.split(",") for line in file.read_text().splitlines()[1:]]
        assert {row[3] for row in rows} == {"float32", "int64"} and all(row[-1] == "0" for row in rows)
        assert {row[6] for row in rows} == ({"0", "1"} if collective in ("broadcast", "reduce") else {"0"})


@pytest.mark.long
def test_bench_elastic_measures_each_kill_and_the_cost_without_faults(tmp_path):
    file = tmp_path / "elastic.json"
    job = ["--ranks", "2", "--bytes", "64K", "--compute-ms", "1"]
    command = [HORO, "bench", "elastic", *job, "--kills", "2", "--rounds", "1", "--steps", "5", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and "without faults" in done.stdout, done.stdout + done.stderr
    report = json.loads(file.read_text())
    assert len(report["r_ms"]) == 2 and all(whole > 0 for whole in report["r_and_step_ms"])
    assert all(step > 1 for name in ("static_step_ms", "elastic_step_ms") for step in report[name])
    phases = [phase["ms"] for phase in report["phases_ms"]]
    assert len(phases) == 7 and all(ms >= 0 for phase in phases for ms in phase)
    assert [sum(kill) for kill in zip(*phases)] == pytest.approx(report["r_and_step_ms"], abs=0.01)
    assert len(report["seen_by_ranks_ms"]) == len(report["seen_by_guard_ms"]) == 2


def test_bench_elastic_kills_a_rank_that_holds_memory_and_its_report_is_drawn(tmp_path):
    file, plot = tmp_path / "elastic.json", tmp_path / "elastic.png"
    job = ["--ranks", "3", "--bytes", "64K", "--compute-ms", "1", "--resident", "16M"]
    command = [HORO, "bench", "elastic", *job, "--kills", "2", "--rounds", "0", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    report = json.loads(file.read_text())
    assert done.returncode == 0 and report["resident_bytes"] == 16 << 20, done.stdout + done.stderr
    assert len(report["r_ms"]) == 2 and len(report["seen_by_ranks_ms"]) == 4
    pytest.importorskip("matplotlib")
    subprocess.run([sys.executable, ROOT / "bench/plot", "--recovery", file, plot], check=True, timeout=180)
    assert plot.read_bytes()[:4] == b"\x89PNG"


def test_bench_elastic_measures_two_hosts(tmp_path):
    file = tmp_path / "elastic.json"
    job = ["--ranks", "2", "--bytes", "64K", "--compute-ms", "1", "--kills", "2", "--rounds", "0", "--json", file]
    command = [sys.executable, ROOT / "bench/elastic_hosts", *job]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    if done.returncode == 2 and ("root" in done.stderr or "iproute2" in done.stderr):
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(file.read_text())
    assert report["hosts"] == 2 and len(report["seen_by_other_hosts_ms"]) == len(report["r_ms"]) == 2


def test_bench_elastic_refuses_hosts_that_cannot_have_the_ranks():
    for hosts, why in (("a=1,b", "expected NAMESPACE=ADDRESS"), ("a=1", "at least two"), ("a=1,b=2", "a multiple of")):
        command = [HORO, "bench", "elastic", "--ranks", "3", "--hosts", hosts]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        assert done.returncode == 2 and why in done.stderr, done.stderr


def test_bench_join_measures_the_pause_and_the_start_of_a_native_rank(tmp_path):
    rank, file = ROOT / "build/release/tests/horo/growing_rank", tmp_path / "join.json"
    if not rank.exists():
        pytest.skip("no build tree has growing_rank: tools/test release")
    small = ["--only", "pause,native", "--mib", "1", "--native-mib", "1", "--rounds", "2", "--wait", "0"]
    command = [sys.executable, ROOT / "bench/join", *small, "--horo", HORO, "--rank", rank, "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and "pause of the survivors, 1 MiB" in done.stdout, done.stdout + done.stderr
    parts = json.loads(file.read_text())
    assert list(parts) == ["pause", "native"] and all(len(part["rows"]) == 1 for part in parts.values())
    pause, native = (part["rows"][0] for part in parts.values())
    assert pause["unit"] == "us" and pause["must"] > pause["aim"] > pause["step"] > 5_000  # and a wait of 5 ms
    assert len(pause["values"]) == 2 and pause["max"] >= pause["median"] > pause["step"]
    assert native["max"] >= native["median"] > 1_000
