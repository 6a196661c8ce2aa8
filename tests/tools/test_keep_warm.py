"""An idle job between hosts with a long line keeps its connections warm, striped ones too, and then continues."""

import subprocess
import sys
import time

import pytest
from launching import ROOT, clean_environment

sys.path.insert(0, str(ROOT / "tools"))

import hosts  # noqa: E402

DEADLINE_S = 180
SEGMENTS = 20  # more than the two keep-alive probes that the kernel sends on each connection
PROGRAM = """
import sys, numpy, horo.numpy as horo
horo.init()
step = lambda name: horo.allreduce(numpy.full(300_000, 1.0 + horo.rank()), name=name, op=horo.Sum)
for number in range(3): step("step")
print("ready", flush=True)
sys.stdin.read()
assert (step("step") == 3.0).all()
horo.shutdown()
"""

pytestmark = pytest.mark.skipif(hosts.missing(line=True) is not None, reason=str(hosts.missing(line=True)))


def start(pair, host, rank, key):
    world = {"HORO_RANK": str(rank), "HORO_SIZE": "2", "HORO_LOCAL_RANK": "0", "HORO_LOCAL_SIZE": "1"}
    place = {"HORO_ADDR": f"{pair.addresses['A']}:29413", "HORO_KEY_FILE": key, "HORO_TCP_WIDTH": "2"}
    # BBR connections are not kept warm. Reno is in every kernel, and every namespace may select it.
    choose = 'echo reno > /proc/sys/net/ipv4/tcp_congestion_control; exec "$@"'
    return subprocess.Popen(
        [*pair.on(host), "sh", "-c", choose, "sh", sys.executable, "-c", PROGRAM],
        env=clean_environment(world | place | {"OMP_NUM_THREADS": "1"}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_an_idle_job_keeps_its_long_connections_warm(tmp_path):
    with hosts.two_namespaces(["delay 2ms"]) as pair:
        key = hosts.write_key(tmp_path)
        processes = [start(pair, host, rank, key) for rank, host in enumerate("AB")]
        try:
            assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
            sent = {way: one["segments"] for way, one in pair.line.counters().items()}
            end = time.monotonic() + DEADLINE_S
            while any(one["segments"] < sent[way] + SEGMENTS for way, one in pair.line.counters().items()):
                assert time.monotonic() < end, f"{sent} segments, then {pair.line.counters()}"
                time.sleep(0.05)
            for process in processes:
                process.stdin.close()
            assert [process.wait(DEADLINE_S) for process in processes] == [0, 0]
        finally:
            for process in processes:
                process.kill()
                process.wait()
