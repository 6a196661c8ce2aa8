"""HORO_BACKEND=mpi, under Open MPI's mpirun: the results of other backends, and errors that name the cause."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import ranks

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests/python/programs"
MPI = {"HORO_BACKEND": "mpi"}
SINGLE, FUNNELED, SERIALIZED, MULTIPLE = range(4)


def by_mpirun(program, size, *arguments, env=None, options=()):
    command = [ranks.start.python(), str(PROGRAMS / f"{program}.py"), *map(str, arguments)]
    return ranks.run_by_mpirun(command, size, 360, MPI | (env or {}), options)


def expect_well(ended):
    if any(rank.code != 0 for rank in ended):
        pytest.fail(str(ranks.RanksFailed(ended)), pytrace=False)
    return ended


# These programs compare every result bitwise with an oracle, as over other connections (test_collectives.py).
@pytest.mark.parametrize(
    "program, size", [("collectives", 2), ("collectives_numpy", 3), ("collectives_torch", 3), ("sets", 4)]
)
def test_every_collective_has_the_bits_that_it_has_without_mpi(program, size):
    expect_well(by_mpirun(program, size))


def test_training_over_mpi_ends_with_the_bits_of_shared_memory():
    digits = [ranks.start.python(), str(PROGRAMS / "digits_briefly.py"), "2"]
    found = set()
    for backend in ("mpi", "auto"):
        ended = expect_well(ranks.run_by_mpirun(digits, 4, 360, {"HORO_BACKEND": backend}))
        found |= set(re.findall(r"sha256 of the parameters ([0-9a-f]{64})", "".join(rank.output for rank in ended)))
    assert len(found) == 1


def test_tensors_go_through_mpi_and_not_through_sockets():
    for env, goes_by_sockets in ((MPI, False), ({"HORO_BACKEND": "auto", "HORO_TRANSPORT": "tcp"}, True)):
        for rank in expect_well(by_mpirun("mpi_bytes", 2, env=env)):
            sent = int(re.search(r"sent (\d+)", rank.output)[1])
            assert (sent > 8 << 20) == goes_by_sockets, rank.output


# mpirun kills the other ranks a second after a death, unless it has --enable-recovery.
@pytest.mark.parametrize("options", [(), ("--enable-recovery",)])
def test_a_killed_rank_is_named_and_no_rank_waits_for_it(options):
    ended = by_mpirun("mpi_loss", 4, options=options)
    for rank in (ended[0], ended[2], ended[3]):
        assert re.search(r"lost 1: rank 1 \(host \S+, pid \d+\) is lost: .+", rank.output), ranks.RanksFailed(ended)
        assert rank.code is not None, "it hangs"
        assert options or rank.code != 0  # with --enable-recovery the exit status of mpirun is 0
    if options:
        for rank in (ended[0], ended[2], ended[3]):
            assert "continues" in rank.output
            assert "ends without MPI_Finalize, which would wait for ranks that are lost: rank 1" in rank.output


@pytest.mark.parametrize("level", [SERIALIZED, MULTIPLE])
def test_an_mpi_that_the_program_started_is_used_and_left_to_it(level):
    for rank in expect_well(by_mpirun("mpi_user", 2, level)):
        assert "sum [2.0, 2.0, 2.0]" in rank.output and "finalized" in rank.output


def test_with_mpi_thread_serialized_horo_warns_once():
    ended = expect_well(by_mpirun("mpi_user", 2, SERIALIZED))
    text = "".join(rank.output for rank in ended)
    assert text.count("MPI has MPI_THREAD_SERIALIZED alone: no other thread may call it between horo's init") == 1


@pytest.mark.parametrize("level, name", [(SINGLE, "MPI_THREAD_SINGLE"), (FUNNELED, "MPI_THREAD_FUNNELED")])
def test_a_thread_level_with_which_horo_cannot_work_is_refused(level, name):
    for rank in expect_well(by_mpirun("mpi_user", 2, level)):
        assert f"refused: HORO_BACKEND=mpi: this program started MPI with {name}" in rank.output


def test_after_a_loss_the_programs_own_end_of_mpi_ends_the_process():
    ended = by_mpirun("mpi_user", 3, MULTIPLE, "loss", options=("--enable-recovery",))
    for rank in (ended[0], ended[2]):
        assert "lost 1: rank 1" in rank.output and "ends without MPI_Finalize" in rank.output, ranks.RanksFailed(ended)
        assert "finalized" not in rank.output


def refusal(env):
    """The error of a single process with mpirun's variables."""
    started = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
    program = "import ctypes, os, horo\nif 'LOADED' in os.environ: ctypes.CDLL(os.environ['LOADED'])\nhoro.init()"
    env = os.environ | MPI | started | env
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 1, done
    return done.stderr.strip().splitlines()[-1]


def library(folder, name, text):
    source = folder / "source.cc"
    source.write_text(text)
    command = ["g++", "-shared", "-fPIC", f"-Wl,-soname,{name}", str(source), "-o", str(folder / name)]
    subprocess.run(command, check=True, timeout=180)
    return str(folder / name)


def test_another_mpi_in_the_process_is_named(tmp_path):
    text = (
        '#include <cstring>\nextern "C" int MPI_Get_library_version(char* text, int* length) '
        '{ std::strcpy(text, "MPICH Version:\\t4.0.2\\nmore"); *length = 20; return 0; }'
    )
    said = refusal({"LOADED": library(tmp_path, "libmpi.so.12", text)})
    assert "this process uses another MPI (MPICH Version: 4.0.2): expected Open MPI (libmpi.so.40)" in said


def test_the_reason_is_given_if_open_mpi_cannot_be_loaded(tmp_path):
    (tmp_path / "libmpi.so.40").write_bytes(b"")
    said = refusal({"LD_LIBRARY_PATH": str(tmp_path)})
    assert re.search(r"Open MPI cannot be loaded \(.*libmpi\.so\.40.*\): expected libmpi\.so\.40 where", said)


def test_a_plug_in_that_is_none_or_of_another_version_is_refused(tmp_path):
    none = library(tmp_path, "libnone.so", "int nothing;")
    assert "libnone.so is no plug-in of horo" in refusal({"HORO_MPI_LIBRARY": none})
    text = 'extern "C" const unsigned* horo_mpi_api() { static unsigned n = 0; return &n; }'
    old = library(tmp_path, "libold.so", text)
    assert "libold.so is of another version of horo: its table has version 0" in refusal({"HORO_MPI_LIBRARY": old})


def test_libhoro_itself_is_not_linked_to_mpi():
    from horo import _native

    told = subprocess.run(["ldd", _native.library_path()], capture_output=True, text=True, check=True, timeout=180)
    assert "libmpi" not in told.stdout
