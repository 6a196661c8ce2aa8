"""The same bits, whatever the transport, timing and bucket size; and steps that send no names."""

import ast
import pathlib
import shutil

import pytest
import ranks

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/bits.py"


def read(output):
    return ast.literal_eval(output.strip().splitlines()[-1])


def digests(launch, size, transport="auto", ranks_of_host=0):
    """Of rank 0. With ranks_of_host, so many ranks count as one host."""
    environment = {"HORO_TRANSPORT": transport, "HORO_TRUST_STORE": "1"}
    return read(launch("bits", size, arguments=[ranks_of_host], env=environment)[0])


def expect_bits_of_ddp(found):
    """Those of any bucket size."""
    assert len({value for key, value in found.items() if key.startswith("ddp")}) == 1, found


@pytest.mark.long
def test_ddp_has_the_bits_of_the_optimizer_on_four_ranks(launch):
    found = digests(launch, 4)
    expect_bits_of_ddp(found)
    assert found["ddp 25 MB"] == found["optimizer"] == found["hook"]
    assert found == digests(launch, 4, "tcp")


def test_the_hook_has_the_bits_of_the_optimizer_on_three_ranks_of_two_hosts(launch):
    found = digests(launch, 3, ranks_of_host=2)
    expect_bits_of_ddp(found)
    assert found["hook"] == found["optimizer"]
    assert found == digests(launch, 3)


@pytest.mark.skipif(shutil.which(ranks.MPIRUN) is None, reason=f"no {ranks.MPIRUN}: apt install openmpi-bin")
def test_ddp_has_the_bits_of_the_optimizer_on_two_ranks_whose_transport_is_mpi(launch):
    found = digests(launch, 2)
    expect_bits_of_ddp(found)
    assert found["ddp 25 MB"] == found["optimizer"] == found["hook"]
    host, port = ranks.free_address().split(":")
    environment = {"HORO_BACKEND": "mpi", "MASTER_ADDR": host, "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    by_mpi = ranks.run_by_mpirun([ranks.start.python(), str(PROGRAM), "0"], 2, 120, environment)
    assert [rank.code for rank in by_mpi] == [0, 0], ranks.RanksFailed(by_mpi)
    assert found in [read(rank.output) for rank in by_mpi if "ddp" in rank.output], by_mpi
