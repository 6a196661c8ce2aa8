"""tools/soak survive --partitions and --hosts: their judges, and short runs of them."""

import json
import subprocess
import sys

import pytest
from launching import HORO, ROOT

sys.path.insert(0, str(ROOT / "tools"))

import hosts  # noqa: E402
import packet_filter  # noqa: E402
import ranks  # noqa: E402
from soaks import survive_partitions  # noqa: E402

RANK = ROOT / "build/release/tests/horo/elastic_rank"
needs_hosts = pytest.mark.skipif(hosts.missing() is not None, reason=str(hosts.missing()))
needs_rank = pytest.mark.skipif(not RANK.exists(), reason="no build tree has elastic_rank: tools/test release")


def run(*words):
    command = [*ranks.start.tool(), ROOT / "tools/soak", "survive", "--json", *words, "--horo", HORO, "--rank", RANK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if "Unknown filter" in done.stderr or "qdisc kind is unknown" in done.stderr:
        pytest.skip("this kernel has no packet filters of tc")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def lines(*members):
    return [f"{number} {mask} {number:x}" for number, mask in enumerate(members, 1)]


def test_a_second_result_of_a_round_is_found():
    good = {0: lines(15, 15, 3), 1: lines(15, 15, 3), 2: lines(15, 15), 3: lines(15)}
    assert survive_partitions.faults_of_results(good, {0, 1}) == []
    (found,) = survive_partitions.faults_of_results(good | {3: lines(15, 12)}, {0, 1})
    assert found == "two results of a round: rank 3 has 2 12 2, another one 2 15 2"
    (found,) = survive_partitions.faults_of_results(good | {1: lines(15, 15)}, {0, 1})
    assert found == "rank 1 has 2 results, another one 3"
    found = survive_partitions.faults_of_results({0: lines(3, 15)}, {0})
    assert found == ["members 3x1,15x1, do not only shrink"]


@needs_hosts
def test_a_filter_drops_what_arrives_from_or_to_a_port():
    serve = "import socket; s = socket.create_server(('', {0})); print(flush=True); s.accept()"
    call = "import socket; socket.create_connection(('{0}', {1}), 1)"
    with hosts.two_namespaces() as pair:
        here = [*pair.on("A"), sys.executable, "-c"]
        from_b = [*pair.on("B"), sys.executable, "-c"]
        servers = [subprocess.Popen([*here, serve.format(port)], stdout=subprocess.PIPE) for port in (8000, 8001)]
        try:
            for server in servers:
                server.stdout.readline()

            def reaches(port):
                done = subprocess.run([*from_b, call.format(pair.addresses["A"], port)], capture_output=True)
                return done.returncode == 0

            try:
                packet_filter.drop("A", hosts.DEVICE, packet_filter.Only(8000))
            except RuntimeError as error:
                pytest.skip(f"this kernel has no packet filters of tc: {error}")
            assert (reaches(8000), reaches(8001)) == (False, True)
            packet_filter.pass_all("A", hosts.DEVICE)
            assert reaches(8000)
        finally:
            for server in servers:
                server.kill()
                server.communicate()


@pytest.mark.parametrize("form", ["both ways,for ever,host 0", "grpc,short,elsewhere"])
@needs_hosts
@needs_rank
def test_one_side_of_a_partition_goes_on(form):
    assert run("--partitions", "1", "--only", form, "--evict-after", "1")["partitions"] == 1


@needs_hosts
@needs_rank
def test_jobs_on_two_hosts_end_right_and_leave_nothing():
    assert run("--hosts", "4", "--seed", "2")["jobs"] == 4
