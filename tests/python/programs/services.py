"""What extensions are made of: meshes, collectives into the caller's memory with known rows, sets that their members
make, memory that the ranks of a host map, the numbers of the members."""

import numpy as np
import torch
from raising import raises

import horo
import horo.numpy
import horo.torch as hvd

hvd.init()
ME, SIZE = hvd.rank(), hvd.size()
ROWS = tuple(3 * rank + 1 for rank in range(SIZE))
TOTAL = sum(ROWS)
WHOLE = torch.arange(2.0 * TOTAL).view(TOTAL, 2)
FIRST = sum(ROWS[:ME])


def scatters_into_memory():
    for step in range(3):
        source, part = (WHOLE + step) * (ME + 1), torch.zeros(ROWS[ME], 2)
        version = part._version
        handle = hvd.reducescatter_async(source, name="cut", op=hvd.Sum, splits=ROWS, out=part, priority=-3)
        assert hvd.synchronize(handle) is part and part._version > version
        reduced = hvd.allreduce(source, op=hvd.Sum)
        assert torch.equal(part, reduced[FIRST : FIRST + ROWS[ME]]), "a cut is the slice of the whole reduction"
    fast = hvd.synchronize(hvd.reducescatter_async(torch.ones(SIZE), op=hvd.Average, order="fast"))
    assert fast.tolist() == [1.0]
    mine = np.zeros(ROWS[ME])
    handle = horo.numpy.reducescatter_async(np.ones(TOTAL), op=horo.numpy.Sum, splits=np.array(ROWS), out=mine)
    assert horo.numpy.synchronize(handle) is mine and mine.tolist() == [SIZE] * ROWS[ME]


def gathers_into_memory():
    for step in range(3):
        part = WHOLE[FIRST : FIRST + ROWS[ME]] + step
        whole = torch.full((TOTAL, 2), -1.0)
        handle = hvd.allgather_async(part, name="known", rows=ROWS, out=whole, priority=2)
        assert torch.equal(hvd.synchronize(handle), WHOLE + step) and torch.equal(whole, WHOLE + step)
    whole = torch.zeros(TOTAL, 2)
    whole[FIRST : FIRST + ROWS[ME]] = part
    hvd.synchronize(hvd.allgather_async(whole[FIRST : FIRST + ROWS[ME]], rows=ROWS, out=whole))  # in its place
    assert torch.equal(whole, WHOLE + 2)
    gathered, rows = hvd.synchronize(hvd.allgather_async(part, rows=ROWS, with_rows=True))
    assert torch.equal(gathered, WHOLE + 2) and tuple(rows) == ROWS
    roomy = torch.full((TOTAL + 4, 2), -1.0)
    for _ in range(3):  # sizes are exchanged
        found = hvd.synchronize(hvd.allgather_async(part, name="sizes", out=roomy))
        assert torch.equal(found, WHOLE + 2) and found.data_ptr() == roomy.data_ptr() and roomy[TOTAL:].eq(-1).all()
    room = np.zeros(TOTAL, np.int64)
    horo.numpy.synchronize(horo.numpy.allgather_async(np.full(ROWS[ME], ME), rows=ROWS, out=room))
    assert room.tolist() == [rank for rank, rows in enumerate(ROWS) for _ in range(rows)]
    nothing = hvd.synchronize(hvd.allgather_async(torch.zeros(0, 3), rows=(0,) * SIZE, out=torch.zeros(0, 3)))
    assert nothing.shape == (0, 3)


def refuses_by_name():
    part, whole = torch.zeros(ROWS[ME], 2), torch.zeros(TOTAL, 2)
    off = tuple(rows + 1 for rows in ROWS)
    for call, words in (
        (lambda: hvd.allgather_async(part, rows=off, out=whole), f"rank {ME} has {ROWS[ME]} rows; expected {off[ME]}"),
        (lambda: hvd.allgather_async(part, rows=ROWS[1:], out=whole), f"from each of {SIZE} members"),
        (lambda: hvd.allgather_async(part, rows=ROWS, out=whole[:-1]), f"expected [{TOTAL}, 2], or more rows"),
        (lambda: hvd.allgather_async(part, rows=ROWS, out=whole.double()), "out is of torch.float64"),
        (lambda: hvd.allgather_async(part, rows=ROWS, out=torch.zeros(2, TOTAL).t()), "not contiguous"),
        (lambda: hvd.allgather_async(part, rows=3), "rows=3; expected a list"),
        (lambda: hvd.reducescatter_async(whole, splits=off), f"is greater than the first dimension ({TOTAL})"),
        (lambda: hvd.reducescatter_async(whole, splits=(0,) * SIZE), f"expected the sum {TOTAL}"),
        (lambda: hvd.reducescatter_async(whole, splits=ROWS, out=whole), f"expected [{ROWS[ME]}, 2]"),
        (lambda: hvd.reducescatter_async(whole, order="quick"), "order='quick'"),
        (lambda: hvd.reducescatter_async(whole, priority=1.5), "priority=1.5"),
        (lambda: hvd.empty(2, -1), "a number of at least 0"),
        (lambda: hvd.empty(2, dtype=torch.qint8), "dtype=torch.qint8"),
        (lambda: horo.mesh(), "at least one axis"),
        (lambda: horo.mesh(a=-1, b=-1), "once"),
        (lambda: horo.mesh(a=SIZE + 1), f"whose product is {SIZE}"),
        (lambda: horo.mesh(a="2"), "mesh: a='2'"),
        (lambda: hvd.add_process_set([0], name=""), "expected a text"),
        (lambda: hvd.add_process_set([(ME + 1) % SIZE], name="others"), f"rank {ME} is not one of the ranks"),
    ):
        with raises(ValueError, words):
            call()
    first = hvd.add_process_set([0, 1])
    if ME > 1:
        for call in (
            lambda: hvd.allgather_async(part, rows=(9, 9), process_set=first),
            lambda: hvd.reducescatter_async(whole, splits=(1, TOTAL - 1), out=part, process_set=first),
        ):
            with raises(
                ValueError, f"rank {ME} is not in process set {first.process_set_id}, which has the ranks 0, 1"
            ):
                call()
    hvd.remove_process_set(first)
    with raises(TypeError, "allgather: out"):
        hvd.allgather_async(part, out=[1.0])
    other = ROWS if ME else (ROWS[0], ROWS[2], ROWS[1], *ROWS[3:])  # each rank has its own rows right
    with raises(horo.Mismatch, "differ"):
        hvd.synchronize(hvd.allgather_async(part, name="differ", rows=other))


def meshes():
    mesh = horo.mesh(dp=-1, tp=2)
    assert mesh.shape == {"dp": SIZE // 2, "tp": 2} and repr(mesh) == f"mesh(dp={SIZE // 2}, tp=2)"
    assert (mesh.rank("dp"), mesh.rank("tp")) == divmod(ME, 2) and mesh.size("tp") == 2
    assert mesh["tp"].ranks == [ME // 2 * 2, ME // 2 * 2 + 1] and mesh["dp"].ranks == list(range(ME % 2, SIZE, 2))
    for axis in ("dp", "tp"):
        total = hvd.allreduce(torch.tensor([ME]), op=hvd.Sum, process_set=mesh[axis], name="of the axis")
        assert total.item() == sum(mesh[axis].ranks)
    again = horo.mesh(a=2, b=1, c=-1)
    assert again["a"].ranks == [ME % 2, ME % 2 + 2] and again["b"].ranks == [ME]
    assert horo.mesh(only=-1)["only"] is hvd.global_process_set
    with raises(KeyError, "'pp' is no axis of mesh(dp="):
        mesh["pp"]
    other = {"dp": 2, "tp": 2} if ME else {"tp": 2, "dp": 2}
    with raises(horo.Mismatch, "mesh(tp=2, dp=2) on ranks 0; mesh(dp=2, tp=2) on ranks 1, 2, 3"):
        horo.mesh(**other)
    with raises(horo.Mismatch, "mesh(a='x') on ranks 0; mesh(a=4) on ranks 1, 2, 3"):  # no rank waits for rank 0
        horo.mesh(a=4 if ME else "x")


def sets_of_members():
    if ME != 1:
        one = hvd.add_process_set([0, 2, 3], name="first")
        two = hvd.add_process_set([0, 2, 3], name="second")
        assert one.process_set_id != two.process_set_id and one.size() == 3
        for each in (one, two):
            assert hvd.allreduce(torch.tensor([ME]), op=hvd.Sum, process_set=each).item() == 5
        assert hvd.remove_process_set(two) and hvd.remove_process_set(one)
        assert hvd.remove_process_set(hvd.add_process_set([0, 2, 3], name="first"))


def memory_and_members():
    assert not horo.is_elastic() and horo.members() == hvd.members() == tuple(range(SIZE))
    tensor = hvd.empty((2, 3), dtype=torch.bfloat16)
    assert tensor.shape == (2, 3) and tensor.dtype == torch.bfloat16 and tensor.data_ptr() % 64 == 0
    assert hvd.empty(4).dtype == torch.float32 and hvd.empty(0, 2).shape == (0, 2) and hvd.empty(()).shape == ()
    tensor.fill_(1)
    hvd.allreduce_(tensor, op=hvd.Sum)
    assert tensor.eq(SIZE).all()


scatters_into_memory()
gathers_into_memory()
refuses_by_name()
meshes()
sets_of_members()
memory_and_members()
hvd.shutdown()
