"""Processes that a rank has started are no ranks: init() says which rank has started them. Other jobs may begin there.

Arguments: the horo executable.
"""

import concurrent.futures
import multiprocessing
import os
import subprocess
import sys

import claims
import torch

import horo.torch as hvd

PLACE_AND_INIT = """
import numpy, horo.numpy as hvd
def answer(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
print(answer(lambda: (hvd.rank(), hvd.size(), hvd.is_initialized())))
print(answer(lambda: hvd.init() or (hvd.size(), hvd.allreduce(numpy.ones(1), op=hvd.Sum).item())))
print(answer(hvd.barrier))
"""


def told(text):
    """Whether the text says that this rank has started the process, and what to do."""
    told_rank = f"was started by rank {hvd.rank()} (pid {os.getpid()}) of a job of {hvd.size()}" in text
    return told_rank and 'if __name__ == "__main__":' in text and "horo run" in text


def child(command=(sys.executable, "-c", PLACE_AND_INIT), **options):
    """The lines that a program prints which this rank starts."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.splitlines()


def try_init(_):
    try:
        hvd.init()
    except hvd.HoroError as error:
        return type(error) is hvd.HoroError, str(error), hvd.rank(), hvd.size(), hvd.is_initialized()
    return "init() succeeded"


def workers_of_multiprocessing_are_told():
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            for is_plain, text, *place in pool.map(try_init, range(1)):
                assert is_plain and told(text), text
                assert place == [hvd.rank(), hvd.size(), False]


class Places(torch.utils.data.Dataset):
    """The rank and size of the worker."""

    def __len__(self):
        return 4

    def __getitem__(self, _):
        return torch.tensor([hvd.rank(), hvd.size()])


def workers_of_a_loader_know_their_rank():
    loader = torch.utils.data.DataLoader(
        Places(), num_workers=1, multiprocessing_context="spawn", persistent_workers=True
    )
    for _ in range(2):
        for place in loader:
            assert place.tolist() == [[hvd.rank(), hvd.size()]]
            hvd.allreduce(place, name="place")


def a_program_that_a_rank_starts_is_told():
    for keeps_descriptors in (True, False):
        place, init, barrier = child(close_fds=not keeps_descriptors)
        assert place == str((hvd.rank(), hvd.size(), False))
        assert told(init) and told(barrier), (init, barrier)


def a_program_without_the_jobs_variables_is_a_world_of_one():
    names = ("HORO_RANK", "HORO_SIZE", "HORO_LOCAL_", "HORO_ADDR", "HORO_KEY_FD", "RANK", "WORLD_SIZE", "OMPI_", "PMI")
    alone = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    place, init, barrier = child(env=alone)
    assert "not been initialized" in place and (init, barrier) == ("(1, 1.0)", "None")


def horo_run_starts_a_job_inside_of_a_rank():
    lines = child([sys.argv[1], "run", "-n", "2", sys.executable, "-c", PLACE_AND_INIT])
    assert sorted(lines) == sorted(f"[{r}] {said}" for r in range(2) for said in (lines[0][4:], "(2, 2.0)", "None"))
    assert "not been initialized" in lines[0]


def a_rank_may_shut_down_and_begin_again():
    hvd.shutdown()
    assert "HORO_STARTED_BY" not in os.environ
    hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def a_rank_may_replace_its_program():
    hvd.barrier()
    if not is_replaced:
        os.execv(sys.executable, [sys.executable, *sys.argv, "replaced"])


CLAIMS = (
    workers_of_multiprocessing_are_told,
    workers_of_a_loader_know_their_rank,
    a_program_that_a_rank_starts_is_told,
    a_program_without_the_jobs_variables_is_a_world_of_one,
    horo_run_starts_a_job_inside_of_a_rank,
    a_rank_may_shut_down_and_begin_again,
    a_rank_may_replace_its_program,
)

if __name__ == "__main__":
    is_replaced = "replaced" in sys.argv
    claims.check(*(CLAIMS[-1:] if is_replaced else CLAIMS))
