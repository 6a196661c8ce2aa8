"""What ranks hold equal, as entries that can be compared: parameters, optimizer state and options.

An entry has a key, which is equal on all ranks and determines the order (options, then each parameter and its state), a
hash of its value, and a label for people. Numbers and texts are compared by value, tensors by type, shape and bytes,
whatever their strides; other objects by their type alone. None counts as no entry. Hashes of tensors on a device arrive
later (audit_devices.py); such a tensor is never equal to one of the host.
"""

import ctypes
import hashlib
import inspect
import numbers
import struct
import weakref

import torch

from horo._native import slow
from horo.torch import devices
from horo.torch.audit_devices import Arrival, Hasher

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_MAX_COPIED_BYTES = 64 << 20  # of tensors that are not contiguous, copied at once
_MAX_DEPTH = 16  # of containers in the state
_NOT_COMPARED = frozenset(("params", "param_names"))
_ELSEWHERE = 1023  # the group of state that belongs to no parameter
_PARAMETER, _STATE, _OPTION = range(3)


class _Slot:
    """What is known of an entry before its value is read."""

    __slots__ = ("dtype", "key", "label", "name", "nbytes", "salt", "shape")


class Snapshot:
    """The entries of one moment, sorted by key. keys and hashes: int64 tensors.

    late: the Hashes of devices, whose entries are the last ones of keys. Before complete() there is no hash."""

    def __init__(self, keys, salts, hashes, late, entries):
        self._order = torch.argsort(keys, stable=True)
        self.keys = keys[self._order]
        self._late, self._salts, self._found = late, salts, hashes
        self._labels, self._values = entries
        self.device_us = 0
        self.arrival = Arrival(late) if late else None
        if not late:
            self.complete()

    def complete(self):
        """Takes the hashes of devices, which have arrived."""
        hashes = self._found
        if self._late:
            hashes = torch.cat([hashes, *(each.values() for each in self._late)])
            self.device_us = sum(each.device_us() for each in self._late)
        self.hashes = (hashes ^ self._salts)[self._order]

    def __len__(self):
        return len(self._labels)

    def label(self, place):
        return self._labels[int(self._order[place])]

    def value(self, place):
        """The value as it is now, as a short text."""
        return _text_of(self._values[int(self._order[place])])


class Entries:
    """Takes Snapshots of an optimizer. Keeps what is equal in all of them: keys and labels.

    names: a function from a parameter to its name or None. A method of the optimizer does not keep it alive.
    has_state: whether ranks hold the optimizer's state equal, too."""

    def __init__(self, names, has_state=True):
        self._has_state = has_state
        self._names = weakref.WeakMethod(names) if inspect.ismethod(names) else lambda: names
        self._slots = {}
        self._hashers = {}  # by device
        self._last = ([], None, None)  # the slots of the last snapshot, their keys and salts

    def take(self, optimizer):
        """Reads all values: the time of reading the memory, and about a microsecond per entry. Devices read theirs
        later, but before the work that their current streams get from now on."""
        reading = _Reading(self._slots)
        groups, name_of = optimizer.param_groups, self._names()
        for number, group in enumerate(groups):
            for option in sorted(group.keys() - _NOT_COMPARED, key=str):
                reading.value((_OPTION, number, option != "lr"), number, str(option), group[option])
        state = optimizer.state if self._has_state else {}
        seen = set()
        for number, group in enumerate(groups):
            for i, param in enumerate(group["params"]):
                name = name_of(param) or f"group.{number}.parameter.{i}"
                reading.tensor((_PARAMETER, number, i), name, "", param)
                if param in state:
                    seen.add(param)
                    reading.value((_STATE, number, i), name, "", state[param])
        for key in state.keys() - seen if len(state) > len(seen) else ():
            reading.value((_STATE, _ELSEWHERE, 0), "the optimizer", "" if key in seen else _key_text(key), state[key])
        return self._snapshot(reading)

    def _snapshot(self, reading):
        slots, hashes, values = reading.end()
        late = []
        for device, (tensors, its_slots, its_values) in reading.on_devices.items():
            if device not in self._hashers:
                self._hashers[device] = Hasher(device)
            late.append(self._hashers[device].begin(tensors))
            slots, values = slots + its_slots, values + its_values
        if slots != self._last[0]:
            keys = torch.tensor([slot.key for slot in slots], dtype=torch.int64, device="cpu")
            salts = torch.tensor([slot.salt for slot in slots], dtype=torch.int64, device="cpu")
            self._last = (slots, keys, salts)
            if len(self._slots) > 2 * len(slots):
                self._slots.clear()
        return Snapshot(self._last[1], self._last[2], hashes, late, ([slot.label for slot in slots], values))


class _Reading:
    """One pass over an optimizer."""

    def __init__(self, slots):
        self._slots = slots
        self._tensors, self._tensor_slots, self._pointers, self._sizes = [], [], [], []
        self._numbers, self._number_slots, self._number_hashes = [], [], []
        self._hashes = []
        self.on_devices = {}  # device: its tensors, their slots and their OnDevice
        self._is_host = devices.places.is_host
        self._copies, self._copied_bytes = [], 0

    def value(self, order, name, field, value, depth=0):
        if value is None:
            return
        if isinstance(value, torch.Tensor):
            self.tensor(order, name, field, value)
        elif isinstance(value, dict) and depth < _MAX_DEPTH:
            for key in sorted(value, key=str):
                self.value(order, name, f"{field}.{key}" if field else str(key), value[key], depth + 1)
        elif isinstance(value, (list, tuple)) and depth < _MAX_DEPTH:
            for i, inner in enumerate(value):
                self.value(order, name, f"{field}[{i}]", inner, depth + 1)
        else:
            self._number(order, name, field, value)

    def tensor(self, order, name, field, tensor):
        if type(tensor) not in _PLAIN or tensor.layout is not torch.strided:
            self._number(order, name, field, tensor)
            return
        if not self._is_host(tensor):
            self._on_device(order, name, field, tensor)
            return
        slot = self._slots.get((order, field))
        if slot is None or slot.shape != tensor.shape or slot.dtype is not tensor.dtype or slot.name != name:
            slot = self._new_slot(order, name, field, tensor)
        self._tensors.append(tensor)
        self._tensor_slots.append(slot)
        self._sizes.append(slot.nbytes)
        if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
            tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
            self._copies.append(tensor)
            self._copied_bytes += slot.nbytes
        self._pointers.append(tensor.data_ptr())
        if self._copied_bytes > _MAX_COPIED_BYTES:
            self._hash()

    def _on_device(self, order, name, field, tensor):
        if not devices.is_known(tensor) or tensor.is_quantized:
            self._number(order, name, field, tensor)
            return
        slot = self._slots.get((order, field, "device"))
        if slot is None or slot.shape != tensor.shape or slot.dtype is not tensor.dtype or slot.name != name:
            slot = self._new_slot(order, name, field, tensor)
            slot.salt = _digest(f"{_text_of_type(tensor)} on a device")
            self._slots[order, field, "device"] = self._slots.pop((order, field))
        tensors, slots, values = self.on_devices.setdefault(tensor.device, ([], [], []))
        tensors.append(tensor.detach().resolve_conj().resolve_neg())
        slots.append(slot)
        values.append(_OnDevice(tensor, slot))

    def _number(self, order, name, field, value):
        slot = self._slots.get((order, field))
        if slot is None or slot.shape is not None or slot.name != name:
            slot = self._new_slot(order, name, field, None)
        self._numbers.append(value)
        self._number_slots.append(slot)
        self._number_hashes.append(_hash_of(value))

    def _new_slot(self, order, name, field, tensor):
        slot = _Slot()
        slot.name = name
        slot.label = _label(order[0], name, field)
        slot.key = _key(order, slot.label)
        is_tensor = tensor is not None
        slot.dtype, slot.shape = (tensor.dtype, tensor.shape) if is_tensor else (None, None)
        slot.nbytes = tensor.nbytes if is_tensor else 0
        slot.salt = _digest(_text_of_type(tensor)) if is_tensor else 0
        self._slots[order, field] = slot
        return slot

    def _hash(self):
        """Hashes the tensors that were found since the last call, and frees their copies."""
        count = len(self._pointers)
        out = torch.empty(count, dtype=torch.int64, device="cpu")
        pointers, sizes = (ctypes.c_void_p * count)(*self._pointers), (ctypes.c_uint64 * count)(*self._sizes)
        status = slow.horo_hash_many(pointers, sizes, count, out.data_ptr())
        assert status == 0, "the address of a tensor is null"
        self._hashes.append(out)
        self._pointers, self._sizes, self._copies, self._copied_bytes = [], [], [], 0

    def end(self):
        self._hash()
        numbers_part = torch.tensor(self._number_hashes, dtype=torch.int64, device="cpu")
        hashes = torch.cat([*self._hashes, numbers_part])
        return self._tensor_slots + self._number_slots, hashes, self._tensors + self._numbers


class _OnDevice:
    """What the text of a tensor on a device is made of. It does not keep the memory of a large one."""

    __slots__ = ("kind", "one", "slot")

    def __init__(self, tensor, slot):
        self.kind, self.slot = type(tensor).__name__, slot
        self.one = tensor if tensor.numel() == 1 else None


def _label(kind, name, field):
    if kind == _OPTION:
        return f"option {field} of group {name}"
    if kind == _PARAMETER:
        return f"parameter {name}"
    return f"state {field} of {name}" if field else f"state of {name}"


def _key(order, label):
    """Options come first, then parameters by group and place, each before its state. Below 2 ** 63."""
    kind, group, place = order
    is_state = kind == _STATE
    high = (kind != _OPTION) << 62 | min(group, _ELSEWHERE) << 52 | (int(place) & 0xFFFFF) << 32
    return high | is_state << 31 | _digest(label) & 0x7FFFFFFF


def _digest(text):
    """A hash of a text as a signed number of 64 bits."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "little", signed=True)


def _hash_of(value):
    """Equal numbers have equal hashes, whatever their type."""
    if isinstance(value, (bool, str)):
        return _digest(repr(value))
    if isinstance(value, torch.Tensor):
        return _digest(_text_of(value))
    if isinstance(value, numbers.Real):
        try:
            as_float = float(value)
        except OverflowError:
            return _digest(repr(value))
        if as_float == value or as_float != as_float:
            return int.from_bytes(struct.pack("<d", as_float), "little", signed=True)
    if isinstance(value, (numbers.Number, bytes)):
        return _digest(repr(value))
    return _digest(_text_of(value))


def _key_text(key):
    return key if isinstance(key, str) else type(key).__name__


def _text_of_type(tensor):
    """Of a tensor or a slot."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _text_of_number(tensor):
    """Of a tensor of one element."""
    try:
        return repr(tensor.item())
    except NotImplementedError:  # torch has no number of this dtype
        return _text_of_type(tensor)


def _text_of(value):
    """Of a tensor on a device: the text beside those of the host, and, after a line break, the one among its like."""
    if isinstance(value, _OnDevice):
        text = _text_of_type(value.slot) if value.one is None else _text_of_number(value.one)
        return f"{value.kind} on cuda, not compared\n{text}"
    if isinstance(value, torch.Tensor):
        if type(value) not in _PLAIN or value.layout is not torch.strided or not value.is_cpu:
            return f"{type(value).__name__} on {value.device.type}, not compared"  # ranks have devices of other numbers
        return _text_of_number(value) if value.numel() == 1 else _text_of_type(value)
    if isinstance(value, (bool, str, bytes, numbers.Number)):
        return repr(value)
    return f"object of type {type(value).__qualname__}"
