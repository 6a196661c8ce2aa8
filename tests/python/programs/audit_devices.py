"""The audit of tensors on a device, on two ranks: what it finds, and that no step waits for the device. With an
argument the hashes themselves are not checked."""

import gc
import itertools
import random
import sys
import types
import warnings

import claims
import torch
from audited import Trained, session
from claims import raises
from torch.utils._python_dispatch import TorchDispatchMode

import horo.torch as hvd
from horo.torch import audit_devices, audit_look, devices

FAKE = devices.places
MODULUS = 1 << 64
ADAM = (torch.optim.Adam, {"lr": 0.01})


def hashes_of(*tensors):
    hashes = audit_devices.Hasher(torch.device("cpu")).begin(list(tensors))
    hashes.wait()
    return hashes.values().tolist()


def hash_by_hand(raw):
    """The hash of these bytes, without torch."""
    words = [int.from_bytes(raw[i : i + 8], "little") for i in range(0, max(len(raw), 1), 8)]
    part = audit_devices._PART
    return mixed([mixed(words[i : i + part]) for i in range(0, len(words), part)])


def mixed(words):
    total = 0
    for place, word in enumerate(words, 1):
        word = (word + place * 0x9E3779B97F4A7C15) % MODULUS
        for factor in (0xDABA0B6EB09322E3, 0xDABA0B6EB09322E3, 1):
            word = (word ^ word >> 32) * factor % MODULUS
        total += word
    return total % MODULUS


def of_all_kinds():
    """Tensors of all types, of several sizes, with random bits."""
    names = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "uint16", "uint32", "uint64"]
    types = [getattr(torch, name) for name in names if hasattr(torch, name)]
    types += [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128]
    types += [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]
    for dtype, count in itertools.product(types, (0, 1, 3, 8, 41)):
        yield bytes_of(random_bytes(count * dtype.itemsize), dtype)


def random_bytes(count):
    return torch.randint(0, 256, (count,), dtype=torch.uint8)


def bytes_of(raw, dtype):
    return raw.view(dtype) if dtype is not torch.bool else raw.remainder(2).view(torch.bool)


def raw_of(tensor):
    return bytes(tensor.contiguous().view(torch.uint8).tolist()) if tensor.numel() else b""


def small_parts(call):
    """A call with parts of so few words that tensors have several."""
    before = audit_devices._PART, audit_devices._BATCH
    audit_devices._PART, audit_devices._BATCH = 5, 3
    try:
        return call()
    finally:
        audit_devices._PART, audit_devices._BATCH = before


def hashes_are_those_of_the_definition():
    """Alone and in a batch, with one part and several."""
    tensors = list(of_all_kinds())
    for check in (lambda call: call(), small_parts):
        expected = check(lambda: [hash_by_hand(raw_of(each)) for each in tensors])
        found = check(lambda: hashes_of(*tensors))
        assert [each % MODULUS for each in found] == expected
        assert check(lambda: [hashes_of(each)[0] for each in tensors]) == found


def changed(tensor, draw):
    """Tensors with one other bit, with two elements that have changed places, and shifted by an element."""
    raw = torch.frombuffer(bytearray(raw_of(tensor)), dtype=torch.uint8)
    if tensor.dtype is torch.bool:
        bits = [(byte, 0) for byte in range(len(raw))]
    else:
        bits = [*itertools.product((0, len(raw) - 1), range(8)), (draw.randrange(len(raw)), draw.randrange(8))]
    for byte, bit in bits:
        other = raw.clone()
        other[byte] ^= 1 << bit
        yield other.view(tensor.dtype)
    rows = raw.view(-1, tensor.element_size())
    one, two = draw.randrange(len(rows)), draw.randrange(len(rows))
    order = torch.arange(len(rows))
    order[[one, two]] = order[[two, one]]
    yield rows[order].view(-1).view(tensor.dtype)
    yield rows.roll(1, 0).view(-1).view(tensor.dtype)


def any_change_is_seen():
    draw = random.Random(5)
    tensors, before = [], []
    for tensor in of_all_kinds():
        if tensor.numel():
            others = [each for each in changed(tensor, draw) if raw_of(each) != raw_of(tensor)]
            tensors += others
            before += [tensor] * len(others)
    assert len(tensors) > 1_000
    for check in (lambda call: call(), small_parts):
        pairs = zip(check(lambda: hashes_of(*tensors)), check(lambda: hashes_of(*before)))
        assert all(one != two for one, two in pairs)
    signs = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    zeros = torch.zeros(4)
    quiet = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    others = hashes_of(signs, -signs, zeros, -zeros, quiet[:1], quiet[1:])
    assert len(set(others)) == len(others), others


def strides_are_not_seen():
    def check():
        for shape in ((4, 6, 5), (1, 30), (30, 1), (2, 3, 2, 5)):
            for dtype in (torch.float32, torch.bfloat16, torch.uint8, torch.complex128):
                tensor = torch.randint(0, 100, shape).to(dtype)
                other = tensor.permute(*reversed(range(tensor.dim()))).contiguous()
                other = other.permute(*reversed(range(tensor.dim())))
                odd = torch.cat([tensor.new_zeros(3), tensor.view(-1)])[3:].view(shape)
                wide = torch.stack([tensor, tensor], -1)[..., 1]
                assert len(set(hashes_of(tensor, other, odd, wide))) == 1, (shape, dtype)
        ones = torch.ones(1).expand(40)
        assert hashes_of(ones) == hashes_of(ones.contiguous())

    check()
    small_parts(check)


class Operators(TorchDispatchMode):
    """Notes the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


VIEWS = {"view", "detach", "slice", "split_with_sizes", "split", "_unsafe_view", "alias", "_to_copy"}
NO_WAIT = {"arange", "mul_", "zeros", "cat", "add", "bitwise_xor_", "cumsum", "index_select", "clone", "sub_", "sum"}


def many_tensors_are_few_launches_and_none_waits():
    sizes = [(64, 64), (64,), (), (7, 3)] * 30
    tensors = [torch.randn(size) for size in sizes] + [torch.randn(size).bfloat16() for size in sizes]
    hasher = audit_devices.Hasher(torch.device("cpu"))
    hasher.begin(tensors)
    copy, FAKE.copy_to_host_later = FAKE.copy_to_host_later, lambda tensor: tensor
    with Operators() as operators:
        hasher.begin(tensors)
    FAKE.copy_to_host_later = copy
    launched = [name for name in operators.names if name not in VIEWS]
    assert set(launched) <= NO_WAIT and len(launched) < 50, launched


def looked(trained, steps):
    """Makes steps; returns how many looks have begun, and the error of the audit with the step that raised it."""
    looks, mark = [], FAKE.mark
    FAKE.mark = lambda device: looks.append(device) or mark(device)
    try:
        for step in range(1, steps + 1):
            try:
                trained.step()
            except hvd.ReplicasDiffer as error:
                return len(looks) // 2, (step, error.label, error.ranks, error.between)
        return len(looks) // 2, None
    finally:
        del FAKE.mark


def limits_of_exchanges(call):
    """The times until which looks have waited for exchanges during a call."""
    has_exchanged, limits = audit_look.Look._has_exchanged, []
    audit_look.Look._has_exchanged = lambda self, until: limits.append(until) or has_exchanged(self, until)
    try:
        call()
    finally:
        audit_look.Look._has_exchanged = has_exchanged
    return limits


class Late(types.SimpleNamespace):
    """A Snapshot of three entries."""

    def __len__(self):
        return 3


def all_ranks_know_a_difference_after_the_same_step():
    """Other ranks have begun the exchange two steps later than this one, which holds the next exchange until then."""
    numbers = torch.arange(3)
    pause = types.SimpleNamespace(is_over=lambda: True)
    snapshot = Late(arrival=pause, complete=lambda: None, keys=numbers, hashes=numbers, device_us=7)
    steps = [1]
    look = audit_look.compare(lambda: (snapshot, (5, 100)), lambda: steps[0], None, None)
    assert next(look) is pause
    steps[0] = 2
    name, row = next(look)
    assert name == "digest" and row.tolist()[2:] == [1, -1, 3, 12, 100, 4], row
    row[0] = ~row[1] + 1
    row[7] = 6
    hold = next(look)
    for steps[0] in (3, 4, 5):
        assert not hold.is_over()
    steps[0] = 6
    assert hold.is_over() and next(look)[0] == "entries"


def the_next_look_is_one_that_no_rank_leaves_out():
    with session(AUDIT_EVERY=100):
        audit = Trained(*ADAM).optimizer._horo_audit
        audit._every = 100
        cases = [(2, 1, 1, 2), (2, 1, 3, 4), (4, 2, 9, 16), (64, 32, 34, 64), (100, 99, 101, 200)]
        for step, looked_after, known_after, expected in cases:
            result = audit_look.Result(None, True, looked_after, 0, 0, known_after)
            assert audit._unless_known(step, result) == expected, (step, known_after)


def equal_replicas_make_no_alarm_and_no_step_waits():
    """The device of rank 1 is later."""
    for late in (0, 1, 3):
        with session(AUDIT="raise"):
            FAKE.late, FAKE.waits = late * hvd.rank(), 0
            trained = Trained(*ADAM)
            found = []
            limits = limits_of_exchanges(lambda: found.extend(looked(trained, 50)))  # noqa: B023
            assert found[0] >= 8 and found[1] is None and FAKE.waits == 0, (found, FAKE.waits)
            assert set(limits) == {0}, limits
            hvd.audit()
            assert FAKE.waits == 1
    FAKE.late = 1


def plant(trained, draw):
    """Changes a bit of one tensor on rank 1. Both ranks draw the same. Returns its label."""
    name = draw.choice(list(trained.names))
    param = trained.names[name]
    fields = [None, "exp_avg", "exp_avg_sq", "step"]
    field = draw.choice(fields)
    tensor = param.detach() if field is None else trained.optimizer.state[param][field]
    element = draw.randrange(tensor.numel())
    if hvd.rank() == 1:
        tensor.view(-1).view(torch.int32)[element] ^= 1 << 22
    return f"parameter {name}" if field is None else f"state {field} of {name}"


def a_difference_is_found_at_the_same_step_of_all_ranks():
    """Adam's step counts are on the host, as with CUDA, or on the device."""
    draw = random.Random(1)
    for number in range(10):
        with session(AUDIT="raise"):
            FAKE.late = draw.randrange(3) * hvd.rank()
            if number % 2:
                FAKE.is_host = lambda tensor: tensor.dim() == 0
            trained = Trained(*ADAM, seed=number)
            trained.step()
            label = plant(trained, draw)
            with raises(hvd.ReplicasDiffer, label, "rank"):
                hvd.audit()
            _, error = looked(trained, 8)
            errors = hvd.allgather_object(error)
            assert error is not None and errors[0] == errors[1], errors
            assert error[2] == [1], errors
            del trained
            vars(FAKE).pop("is_host", None)
    FAKE.late = 1


def one_rank_on_the_host_is_told():
    with session(AUDIT="raise"):
        trained = Trained(*ADAM)
        trained.step()
        if hvd.rank() == 0:
            FAKE.is_host = lambda tensor: tensor.dim() == 1
        told = "Parameter on cuda, not compared on rank 1, float32 [5] on rank 0"
        with raises(hvd.ReplicasDiffer, "parameter 0.bias", told):
            hvd.audit()
        vars(FAKE).pop("is_host", None)
        if hvd.rank() == 1:
            trained.names["2.bias"].data = torch.zeros(4)
        with raises(hvd.ReplicasDiffer, "float32 [4] on rank 1, float32 [3] on rank 0"):
            hvd.audit()
        del trained


def shutdown_ends_the_look_in_progress():
    with session(AUDIT="raise"):
        FAKE.waits = 0
        trained = Trained(*ADAM)
        if hvd.rank() == 1:
            trained.names["2.weight"].data.add_(1)
        trained.step()
        if hvd.rank() == 1:
            trained.names["2.weight"].data.add_(1)
        with raises(hvd.ReplicasDiffer, "parameter 2.weight", "Different after step 1"):
            hvd.shutdown()


def the_time_of_the_device_counts():
    """A look that takes the device a second is made less often."""
    with session(AUDIT="raise", AUDIT_PERMILLE=100):
        FAKE.hash_ms = 1000
        looks, _ = looked(Trained(*ADAM), 50)
        FAKE.hash_ms = 0.01
        assert looks == 1, looks


def a_rank_that_cannot_hash_takes_part_in_the_look():
    with session(AUDIT="raise"):
        trained = Trained(*ADAM)
        if hvd.rank() == 1:
            FAKE.mark = lambda _: torch.empty(1 << 60)
        with warnings.catch_warnings(record=True) as seen:
            trained.step()
            trained.step()
        assert ["has compared nothing after step 1" in str(each.message) for each in seen] == [True] * hvd.rank(), seen
        with raises(*((hvd.HoroError, "a rank could not look at"), (RuntimeError, "memory"))[hvd.rank()]):
            hvd.audit()
        vars(FAKE).pop("mark", None)
        label = plant(trained, random.Random(1))
        assert looked(trained, 10)[1] is not None, label
        del trained


def an_optimizer_that_ends_in_a_look_leaves_no_rank_waiting():
    """The device of rank 1 has not hashed yet."""
    with session(AUDIT="raise"):
        for late in (50, 50, 1):
            FAKE.late = late * hvd.rank()
            trained = Trained(*ADAM)
            trained.step()
            plant(trained, random.Random(1))
            error = looked(trained, 10)[1]
            assert (error is None) == (late == 50), error
            trained = None
            gc.collect()
        assert hvd.allreduce(torch.ones(1)).item() == 1
    FAKE.late = 1


HASHES = (
    hashes_are_those_of_the_definition,
    any_change_is_seen,
    strides_are_not_seen,
    many_tensors_are_few_launches_and_none_waits,
    all_ranks_know_a_difference_after_the_same_step,
)

gc.freeze()  # what is imported; hvd.audit() collects garbage
claims.check(
    *(() if sys.argv[1:] else HASHES),
    the_next_look_is_one_that_no_rank_leaves_out,
    equal_replicas_make_no_alarm_and_no_step_waits,
    a_difference_is_found_at_the_same_step_of_all_ranks,
    one_rank_on_the_host_is_told,
    shutdown_ends_the_look_in_progress,
    the_time_of_the_device_counts,
    a_rank_that_cannot_hash_takes_part_in_the_look,
    an_optimizer_that_ends_in_a_look_leaves_no_rank_waiting,
)
