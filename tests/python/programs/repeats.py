"""A named allreduce_async_ that is repeated: with a similar tensor, with other tensors, and after errors."""

import gc
import threading
import weakref

import claims
import torch
from claims import raises, same_bits

import horo.torch as hvd
from horo import _default
from horo.errors import HoroError


def replaced(tensor):
    """Reduces the tensor times (rank + 1); the sum over two ranks is 3 times the tensor."""
    expected = tensor.detach().clone() * 3
    with torch.no_grad():
        tensor.mul_(hvd.rank() + 1)
    result = hvd.synchronize(start(tensor))
    assert result is tensor
    same_bits(tensor.detach().resolve_conj().resolve_neg(), expected.resolve_conj().resolve_neg())
    return result


def start(tensor):
    return hvd.allreduce_async_(tensor, name="again", op=hvd.Sum)


def expected():
    return "again" in _default.session().repeats


def the_same_tensor_comes_again():
    tensor = torch.ones(5)
    for _ in range(4):
        replaced(tensor)
        assert expected()


def others_like_it_come():
    whole = torch.arange(20.0)
    leaf = torch.zeros(5, requires_grad=True)
    for tensor in (torch.arange(5.0), whole[3:8], torch.nn.Parameter(torch.ones(5)), leaf):
        replaced(tensor)
        assert expected()
    same_bits(whole[:3], torch.tensor([0.0, 1.0, 2.0]))


def tensors_unlike_it_come():
    likes = [
        torch.ones(5, dtype=torch.float64),
        torch.ones(5, dtype=torch.int32),
        torch.ones(5),
        torch.ones(6),
        torch.ones(3, 2),
        torch.ones(5, 1),
        torch.ones(2, 3),
        torch.arange(6.0).reshape(2, 3).t(),
        torch.arange(10.0)[::2],
        torch.tensor(2.0),
        torch.ones(0),
        torch.tensor([1 + 2j, 3 - 4j]),
        torch.tensor([1 + 2j, 3 - 4j]).conj(),
        torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    ]
    for one in likes:
        for other in likes:
            replaced(one)
            replaced(other)


def one_rank_may_have_conjugates():
    plain, conjugate = torch.tensor([1 + 2j, 3 - 4j]), torch.tensor([1 - 2j, 3 + 4j]).conj()
    replaced(plain)
    tensor = (plain, conjugate)[hvd.rank()]
    before = plain.clone() if hvd.rank() == 0 else conjugate.resolve_conj()
    gathered = hvd.allgather(before)
    same_bits(hvd.synchronize(start(tensor)).resolve_conj(), gathered[:2] + gathered[2:])


def every_argument_may_change():
    tensor = torch.full((3,), 2.0)
    for options, result in (
        ({"op": hvd.Sum}, 4.0),
        ({"op": hvd.Average}, 4.0),
        ({"op": hvd.Sum, "prescale_factor": 0.5}, 4.0),
        ({"op": hvd.Sum, "postscale_factor": 0.25}, 2.0),
        ({"op": hvd.Product}, 4.0),
        ({"op": hvd.Max, "order": "fast"}, 4.0),
        ({"average": True}, 4.0),
    ):
        handle = hvd.allreduce_async_(tensor, name="again", **options)
        same_bits(hvd.synchronize(handle), torch.full((3,), result))


def what_is_no_tensor_is_refused_and_does_no_harm():
    replaced(torch.ones(5))
    with raises(TypeError):
        hvd.allreduce_async_([1.0] * 5, name="again")
    replaced(torch.ones(5))
    with raises(NotImplementedError):
        hvd.allreduce_async_(torch.ones(5).to_sparse(), name="again")
    replaced(torch.ones(5))
    with raises(NotImplementedError):
        hvd.allreduce_async_(torch.ones(5, device="meta"), name="again")
    replaced(torch.ones(5))


def in_flight_it_is_refused_and_the_first_ends_well():
    replaced(torch.ones(5))
    tensor, other = torch.ones(5), torch.ones(5)
    if hvd.rank() == 1:
        hvd.barrier()
    handle = start(tensor)
    if hvd.rank() == 0:
        for _ in range(3):
            with raises(ValueError, "in flight already"):
                start(other)
        hvd.barrier()
    same_bits(hvd.synchronize(handle), torch.full((5,), 2.0))
    replaced(other)


def one_that_ended_and_was_not_waited_for_may_come_again():
    handles = []
    for _ in range(3):
        handles.append(start(torch.ones(5)))
        while not hvd.poll(handles[-1]):
            pass
    for handle in handles:
        same_bits(hvd.synchronize(handle), torch.full((5,), 2.0))
    replaced(torch.ones(5))


def memory_that_moves_in_flight_is_found():
    for _ in range(2):
        tensor = replaced(torch.ones(5))
        if hvd.rank() == 1:
            hvd.barrier()
        handle = start(tensor)
        if hvd.rank() == 0:
            alive = weakref.ref(tensor.untyped_storage())
            tensor.data = torch.ones(4000)
            gc.collect()
            assert alive() is not None
            hvd.barrier()
            with raises(HoroError, "again had 20 bytes", "16000 bytes now"):
                hvd.synchronize(handle)
        else:
            hvd.synchronize(handle)


def a_dropped_handle_keeps_the_memory_until_the_end():
    tensor = replaced(torch.ones(5))
    session, alive = _default.session(), weakref.ref(tensor.untyped_storage())
    if hvd.rank() == 1:
        hvd.barrier()
    start(tensor)  # its handle is dropped
    del tensor
    gc.collect()
    work = session.dropped[-1]
    assert work in session.kept
    if hvd.rank() == 0:
        assert not session.has_ended(work)
        hvd.barrier()
    while not session.has_ended(work):
        pass
    replaced(torch.ones(5))
    assert work not in session.kept
    gc.collect()
    assert alive() is None


def threads_may_submit_at_once():
    """One of the threads with the same name succeeds, and its result is right."""
    wins = []

    def come(value):
        tensor = torch.full((1000,), value)
        try:
            handle = start(tensor)
        except ValueError:
            return
        wins.append((tensor, value, handle))

    for _ in range(50):
        wins.clear()
        if hvd.rank() == 1:
            hvd.barrier()
            hvd.synchronize(start(torch.full((1000,), 1.0)))
            continue
        threads = [threading.Thread(target=come, args=(float(i),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        hvd.barrier()
        ((tensor, value, handle),) = wins
        same_bits(hvd.synchronize(handle), torch.full((1000,), value + 1))


def another_session_does_not_have_it():
    replaced(torch.ones(5))
    hvd.shutdown()
    with raises(ValueError, "not been initialized"):
        start(torch.ones(5))
    hvd.init()
    assert not expected()
    replaced(torch.ones(5))
    assert expected()


claims.check(
    the_same_tensor_comes_again,
    others_like_it_come,
    tensors_unlike_it_come,
    one_rank_may_have_conjugates,
    every_argument_may_change,
    what_is_no_tensor_is_refused_and_does_no_harm,
    in_flight_it_is_refused_and_the_first_ends_well,
    one_that_ended_and_was_not_waited_for_may_come_again,
    memory_that_moves_in_flight_is_found,
    a_dropped_handle_keeps_the_memory_until_the_end,
    threads_may_submit_at_once,
    another_session_does_not_have_it,
)
