"""Hashes of tensors that are on a device, which the device computes: no call waits for it.

The bytes of a tensor count as words of 8 bytes, the last one padded with zeros. Each word is mixed with its place by a
bijection of 64 bits, and the mixed words are added modulo 2 ** 64. So any change of a single word is seen, words that
have changed places are seen as any other change of several words is, and the order of the additions does not matter. A
tensor is cut into parts of _PART words. The sums of its parts are words again, of which the hash is made alike.

All of it is done by torch's operators of whole numbers, which have the same results on all devices.
"""

import time

import torch

from horo.torch import devices

_PART = 1 << 20  # words
_BATCH = _PART // 4  # words of several tensors that are mixed at once
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)  # between the numbers of two places
_FACTOR = 0xDABA0B6EB09322E3 - (1 << 64)  # of the mixing, which is that of Doug Lea's SplittableRandom
_POLL_S = 0.001


class Hashes:
    """The hashes of tensors of one device, on their way to the host."""

    def __init__(self, values, order, marks):
        self._values, self._order, self._marks = values, order, marks

    def is_there(self):
        return self._marks[1].query()

    def wait(self):
        self._marks[1].synchronize()

    def values(self):
        """In the order of the tensors. The hashes are there."""
        ordered = torch.empty_like(self._values)
        ordered[self._order] = self._values
        return ordered

    def device_us(self):
        """The time of the device."""
        return int(1000 * self._marks[0].elapsed_time(self._marks[1]))


class Arrival:
    """A pause of a look, until the hashes of all devices are there."""

    def __init__(self, hashes):
        self._hashes = hashes

    def is_over(self):
        return all(each.is_there() for each in self._hashes)

    def wait(self, until):
        """At most until this time of time.monotonic(); None: without a limit. Returns whether it is over."""
        if until is None:
            for each in self._hashes:
                each.wait()
            return True
        while not self.is_over():
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_S)
        return True


class Hasher:
    """Hashes the tensors of a device. Keeps the plan, which is the same as long as their sizes are."""

    def __init__(self, device):
        self._device = device
        self._sizes = self._plan = None

    def begin(self, tensors):
        """The Hashes of tensors that have no lazy conjugation or negation."""
        with torch.no_grad():
            begun = devices.places.mark(self._device)
            words = [_as_words(tensor) for tensor in tensors]
            sizes = [(tensor.element_size(), tensor.numel()) for tensor in words]
            if sizes != self._sizes:
                self._plan, self._sizes = _Plan(sizes, self._device), sizes
            hashes = devices.places.copy_to_host_later(self._plan.hash(words))
            return Hashes(hashes, self._plan.order, (begun, devices.places.mark(self._device)))


class _Plan:
    """How tensors of these sizes, (bytes of an element, elements), are cut into parts and put into batches. A part is
    (place of the tensor, first element, end); the parts of a tensor follow each other. The elements of a batch have one
    size."""

    def __init__(self, sizes, device):
        self._device = device
        order = sorted(range(len(sizes)), key=lambda place: sizes[place][0])  # of the tensors in batches
        self.order = torch.tensor(order, dtype=torch.int64, device="cpu")
        self._batches, self._counts = [], []  # parts; and words of each part
        self._filled = 0  # words of the last batch
        parts_of = [self._add(place, *sizes[place]) for place in order]
        self._counts.append(parts_of)
        self._most = max(map(max, self._counts))
        ends = [torch.tensor(each, dtype=torch.int64, device="cpu").cumsum(0) - 1 for each in self._counts]
        on_device = devices.places.copy_to_device_later(torch.cat(ends), device)
        self._ends = on_device.split([len(each) for each in ends])

    def _add(self, place, width, elements):
        """Puts the parts of a tensor into batches, and returns their number. An empty tensor has a part of one word."""
        step = _PART * 8 // width
        begins = range(0, max(elements, 1), step)
        for begin in begins:
            end = min(begin + step, elements)
            words = max(1, -(-(end - begin) * width // 8))
            last = self._batches[-1] if self._batches else None
            if last is None or last[0] != width or self._filled + words > _BATCH:
                last, self._filled = (width, []), 0
                self._batches.append(last)
                self._counts.append([])
            last[1].append((place, begin, end))
            self._counts[-1].append(words)
            self._filled += words
        return len(begins)

    def hash(self, tensors):
        """The hashes on the device, in the order of this plan."""
        keys = torch.arange(1, self._most + 1, dtype=torch.int64, device=self._device).mul_(_STEP)
        zeros = torch.zeros(8, dtype=torch.uint8, device=self._device)
        sums = []
        for (width, parts), counts, ends in zip(self._batches, self._counts, self._ends):
            words = _joined(tensors, parts, zeros.view(_WORDS[width]))
            sums.append(_sums(words, counts, ends, keys))
        return _sums(torch.cat(sums), self._counts[-1], self._ends[-1], keys)


def _as_words(tensor):
    """The memory of a tensor as whole numbers of the size of its elements; of 8 bytes for larger ones."""
    tensor = tensor.detach()
    if tensor.element_size() == 16:
        tensor = torch.view_as_real(tensor)
    return tensor.view(_WORDS[tensor.element_size()])


def _joined(tensors, parts, zeros):
    """The words of these parts, one after the other: memory of a tensor, if that has words of 8 bytes.

    zeros: 8 bytes, as elements of the same size."""
    width, pieces = zeros.element_size(), []
    for place, begin, end in parts:
        _add_pieces(pieces, tensors[place], begin, end)
        filled = (end - begin) * width % 8
        if filled or end == begin:
            pieces.append(zeros[filled // width :])
    first = pieces[0]
    if len(pieces) > 1:
        first = torch.cat(pieces)
    elif first.data_ptr() % 8 != 0 or first.storage_offset() * width % 8 != 0:
        first = first.clone()
    return first.view(torch.int64)


def _add_pieces(pieces, tensor, begin, end):
    """Appends elements of a tensor, in the order of its indices, as flat tensors. Where the memory is in another order
    they are copies, of no more than these elements."""
    if tensor.is_contiguous():
        pieces.append(tensor.view(-1)[begin:end])
        return
    row = tensor.numel() // len(tensor)
    first, last = -(-begin // row), end // row  # whole rows
    if first > last:
        _add_pieces(pieces, tensor[last], begin - last * row, end - last * row)
        return
    if begin < first * row:
        _add_pieces(pieces, tensor[first - 1], begin - (first - 1) * row, row)
    if first < last:
        pieces.append(tensor[first:last].contiguous().view(-1))
    if last * row < end:
        _add_pieces(pieces, tensor[last], 0, end - last * row)


def _sums(words, counts, ends, keys):
    """The sums of the mixed words of parts that have these counts of words. ends: the last word of each part."""
    places = keys[: counts[0]] if len(counts) == 1 else torch.cat([keys[:count] for count in counts])
    mixed = words + places
    _fold(mixed)
    mixed.mul_(_FACTOR)
    _fold(mixed)
    mixed.mul_(_FACTOR)
    _fold(mixed)
    if len(counts) == 1:
        return mixed.sum(0, keepdim=True)
    until = mixed.cumsum(0).index_select(0, ends)
    sums = until.clone()
    sums[1:].sub_(until[:-1])
    return sums


def _fold(words):
    """One half of each word becomes the exclusive or of both: a bijection."""
    halves = words.view(torch.int32)
    halves[0::2].bitwise_xor_(halves[1::2])
