"""Handles that are copied, or that several threads wait for; empty names."""

import copy
import pickle
import threading

import claims
import torch
from claims import same_bits

import horo.torch as hvd
from horo import _default

THREADS = 4


def start(tensor, name="again"):
    return hvd.allreduce_async_(tensor, name=name, op=hvd.Sum)


def a_copy_of_a_handle_is_the_handle():
    handle = start(torch.ones(5))
    assert copy.copy(handle) is handle and copy.deepcopy([handle])[0] is handle
    number = pickle.loads(pickle.dumps(handle))
    assert type(number) is int and number == handle
    same_bits(hvd.synchronize(number), torch.full((5,), 2.0))
    assert hvd.synchronize(handle) is None


def one_of_several_waiting_threads_gets_the_result():
    hvd.synchronize(start(torch.ones(5)))
    for call in (start, hvd.allgather_async):
        for _ in range(50):
            results = []
            handle = call(torch.ones(5))
            wait = lambda handle=handle, results=results: results.append(hvd.synchronize(handle))  # noqa: E731
            threads = [threading.Thread(target=wait) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(results) == THREADS and sum(result is not None for result in results) == 1, results


def a_late_waiter_does_not_wait_for_the_next_call():
    """Another thread takes the result and starts the next call, before or after this thread waits."""
    session = _default.session()
    hvd.synchronize(start(torch.ones(5)))
    for when in (True, False):
        wait, handle, tensor, later = session.wait, start(torch.ones(5)), torch.full((5,), 7.0), []

        def meanwhile(handle=handle, tensor=tensor, later=later):
            del session.wait
            assert hvd.synchronize(handle) is not None
            later.append(start(tensor))

        def between(works, when=when, wait=wait, meanwhile=meanwhile):
            if when:
                meanwhile()
            wait(works)
            if not when:
                meanwhile()

        session.wait = between
        assert hvd.synchronize(handle) is None
        assert hvd.synchronize(later[0]) is tensor
        same_bits(tensor, torch.full((5,), 14.0))


def an_empty_name_is_no_name():
    for _ in range(3):
        same_bits(hvd.allreduce(torch.ones(2), name="", op=hvd.Sum), torch.full((2,), 2.0))
        same_bits(hvd.synchronize(start(torch.ones(2), "")), torch.full((2,), 2.0))
        same_bits(hvd.grouped_allreduce([torch.ones(2)], name="", op=hvd.Sum)[0], torch.full((2,), 2.0))
        param = torch.nn.Parameter(torch.zeros(5))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [("", param)])
        param.sum().backward()
        optimizer.step()
        same_bits(param.detach(), torch.full((5,), -1.0))
    first, second = start(torch.ones(2), ""), start(torch.ones(2), "")
    same_bits(hvd.synchronize(first), hvd.synchronize(second))


claims.check(
    a_copy_of_a_handle_is_the_handle,
    one_of_several_waiting_threads_gets_the_result,
    a_late_waiter_does_not_wait_for_the_next_call,
    an_empty_name_is_no_name,
)
