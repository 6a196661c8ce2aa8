"""Calls of all kinds, each with what numpy makes of the values of the ranks.

A function of KINDS gets the MemberIds of the ranks, ascending, and yields pairs: a result, and a function of MemberIds
that returns what it has to be. So where ranks are lost meanwhile, the result may be that of those before or after."""

import os

import numpy as np
import torch

import horo.numpy as on_arrays
import horo.torch as horo
import horovod.torch as hvd

ME = int(os.environ["HORO_RANK"])
step = 0  # of the script: the values differ from step to step


def value(member, *shape, salt=0):
    return np.random.default_rng([member, step, salt]).integers(-50, 50, shape).astype(np.float64)


def mine(*shape, salt=0):
    return torch.from_numpy(value(ME, *shape, salt=salt))


def total(members, *shape, salt=0):
    return sum(value(one, *shape, salt=salt) for one in members)


def rows_of(members, count=lambda one: one, salt=0):
    return np.concatenate([value(one, count(one), salt=salt) for one in members])


def reductions(members):
    for _ in range(2):
        yield hvd.allreduce(mine(5), op=hvd.Sum), lambda m: total(m, 5)
    yield hvd.allreduce(mine(5)), lambda m: total(m, 5) / len(m)
    yield hvd.allreduce(mine(5).long(), op=hvd.Max), lambda m: np.max([value(one, 5) for one in m], 0)
    yield hvd.allreduce_(mine(3), op=hvd.Min), lambda m: np.min([value(one, 3) for one in m], 0)
    for _ in range(3):
        yield hvd.allreduce(mine(7), name="named", op=hvd.Sum), lambda m: total(m, 7)
    rows = sum(members)  # other shapes when there are other ranks
    yield hvd.allreduce(mine(rows), name="shape", op=hvd.Sum), lambda m: total(m, rows)
    yield horo.metric_average(float(ME), "metric"), np.mean


def gathers(members):
    yield hvd.allgather(mine(ME % 3)), lambda m: rows_of(m, lambda one: one % 3)
    yield hvd.allgather(mine(ME), name="rows"), rows_of
    yield hvd.allgather_object({ME: [step] * ME}), lambda m: [{one: [step] * one} for one in m]


def roots(members):
    for root in (lambda: 0, lambda: hvd.size() - 1):
        yield hvd.broadcast_object((ME, "x" * ME), root()), lambda m: (m[root()], "x" * m[root()])
        yield hvd.broadcast(mine(4), root()), lambda m: value(m[root()], 4)
        yield horo.reduce(mine(3), root(), op=hvd.Sum), lambda m: total(m, 3) if m[root()] == ME else None
        yield horo.gather(mine(ME), root()), lambda m: rows_of(m) if m[root()] == ME else None


def parts(members):
    size, me = len(members), members.index(ME)
    mine_of = slice(2 * me, 2 * me + 2)
    expected = np.concatenate([value(one, 2 * size)[mine_of] for one in members])
    yield hvd.alltoall(mine(2 * size)), lambda _: expected
    counts = {one: [(one + place) % 3 for place in range(size)] for one in members}
    found, received = hvd.alltoall(mine(sum(counts[ME]), salt=1), splits=torch.tensor(counts[ME]))
    sent = [value(one, sum(counts[one]), salt=1)[sum(counts[one][:me]) :][: counts[one][me]] for one in members]
    yield found, lambda _: np.concatenate(sent)
    yield received, lambda _: [len(one) for one in sent]
    begin = sum(7 // size + (place < 7 % size) for place in range(me))
    rows = slice(begin, begin + 7 // size + (me < 7 % size))
    yield hvd.reducescatter(mine(7), op=hvd.Sum), lambda m: total(m, 7)[rows]
    yield horo.scatter(mine(2 * size), 0), lambda m: value(m[0], 2 * size)[mine_of]


def grouped(members):
    for found, rows in zip(hvd.grouped_allreduce([mine(n, salt=n) for n in (2, 3, 1)], op=hvd.Sum), (2, 3, 1)):
        yield found, lambda m: total(m, rows, salt=rows)
    one, other = hvd.grouped_allgather([mine(ME), mine(2, salt=1)])
    yield one, rows_of
    yield other, lambda m: rows_of(m, lambda _: 2, salt=1)


def handles(members):
    found = [hvd.allreduce_async(mine(4, salt=salt), op=hvd.Sum) for salt in range(4)]
    gathered, root = hvd.allgather_async(mine(2)), hvd.broadcast_async(mine(3), 0)
    for salt in (2, 0, 3, 1):
        yield hvd.synchronize(found[salt]), lambda m: total(m, 4, salt=salt)
    yield hvd.synchronize(root), lambda m: value(m[0], 3)
    yield hvd.synchronize(gathered), lambda m: rows_of(m, lambda _: 2)
    hvd.allreduce_async(mine(4))  # nothing waits for it
    hvd.poll(hvd.allreduce_async(mine(4)))
    hvd.barrier()


def messages(members):
    size, me = len(members), members.index(ME)
    if size == 1:
        return
    around, back = torch.zeros(3).double(), torch.zeros(2).double()
    for handle in (horo.send_async(mine(3), (me + 1) % size), horo.recv_async(around, (me - 1) % size)):
        horo.synchronize(handle)
    yield around, lambda _: value(members[me - 1], 3)
    if me == 0:
        for other in range(1, size):
            horo.send(mine(2, salt=other), other)
        yield horo.recv(back, size - 1, name="back"), lambda _: value(members[-1], 2)
    else:
        yield horo.recv(back, 0), lambda _: value(members[0], 2, salt=me)
        if me == size - 1:
            horo.send(mine(2), 0, name="back")


def arrays(members):
    yield on_arrays.allreduce(value(ME, 4), op=hvd.Sum), lambda m: total(m, 4)
    on_arrays.barrier()
    yield on_arrays.allgather(value(ME, 1, 2)), lambda m: np.concatenate([value(one, 1, 2) for one in m])


def sets(members):
    size = len(members)
    places = [([*range(1, size)], False), ([0, size - 1], True)] if size > 2 else []
    made = [hvd.add_process_set(horo.ProcessSet(ranks, shrinks=shrinks)) for ranks, shrinks in places]
    for one in made:
        ids = [members[rank] for rank in one.ranks]
        if one.included():
            yield hvd.allreduce(mine(3), op=hvd.Sum, process_set=one), lambda _: total(ids, 3)
            hvd.barrier(process_set=one)
            yield hvd.allgather_object(ME, process_set=one), lambda _: ids
            yield hvd.allgather(mine(ME), process_set=one), lambda _: rows_of(ids)
    for one in reversed(made):
        hvd.remove_process_set(one)


def norms(members):
    def normal(m):
        rows = np.concatenate([value(one, 3 + one, 2) for one in m])
        return (value(ME, 3 + ME, 2) - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-5)

    yield hvd.SyncBatchNorm(2).double()(mine(3 + ME, 2)), normal


KINDS = (reductions, gathers, roots, parts, grouped, handles, messages, arrays, sets, norms)


def agrees(found, expected):
    if isinstance(found, torch.Tensor):
        found = found.detach().numpy()
    if not isinstance(found, np.ndarray):
        return not isinstance(expected, np.ndarray) and found == expected
    if expected is None:
        return False
    return found.shape == np.shape(expected) and np.allclose(found, expected, rtol=0, atol=1e-12)
