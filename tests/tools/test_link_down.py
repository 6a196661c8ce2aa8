"""Two hosts lose their network while they train: no rank hangs, and each side names a rank of the other."""

import json
import os
import subprocess
import sys
import time

import pytest
from launching import ROOT, clean_environment

sys.path.insert(0, str(ROOT / "tools"))

import hosts  # noqa: E402

DEADLINE_S = 270
PORT = 29411
ON_HOST = {"A": [0, 1], "B": [2, 3]}
PROGRAM = """
import json, sys, torch, horo.torch as hvd
hvd.init()
step = 0
try:
    while True:
        hvd.allreduce(torch.ones(1000), name=f"step{step % 7}")
        step += 1
        if step == 3:
            print("ready", flush=True)
except hvd.PeerLost as lost:
    print(json.dumps({"origin": lost.origin, "text": str(lost)}), flush=True)
"""

pytestmark = pytest.mark.skipif(hosts.missing() is not None, reason=str(hosts.missing()))


def start(prefix, rank, address, key):
    world = {"HORO_RANK": str(rank), "HORO_SIZE": "4", "HORO_LOCAL_RANK": str(rank % 2), "HORO_LOCAL_SIZE": "2"}
    limits = {"HORO_DEADLINE_MS": "2000", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", PROGRAM],
        env=clean_environment(world | limits | {"HORO_ADDR": f"{address}:{PORT}", "HORO_KEY_FILE": str(key)}),
        stdout=subprocess.PIPE,
        text=True,
    )


def last_lines(processes):
    end = time.monotonic() + DEADLINE_S
    return {rank: process.communicate(timeout=end - time.monotonic())[0] for rank, process in processes.items()}


def test_each_side_of_a_broken_network_names_the_other(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    processes = {}
    try:
        with hosts.two_namespaces() as pair:
            for host, ranks in ON_HOST.items():
                for rank in ranks:
                    processes[rank] = start(pair.on(host), rank, pair.addresses["A"], key)
            for process in processes.values():
                assert process.stdout.readline() == "ready\n"
            hosts.ip("-n", hosts.name_of("A"), "link", "set", hosts.DEVICE, "down")
            said = {rank: json.loads(text) for rank, text in last_lines(processes).items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    named = {rank: one["origin"] for rank, one in said.items()}
    assert {named[0], named[1]} <= {2, 3} and {named[2], named[3]} <= {0, 1}, said
    assert all("no sign of life" in one["text"] or "was lost" in one["text"] for one in said.values()), said
