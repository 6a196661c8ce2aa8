"""Entries: dicts that belong to tensors, such as the state of an optimizer. Each member has those of its parts, which
are joined to those of whole tensors, some MiB at a time."""

import torch

from horo.torch.sharding.extents import flat, joined, like, place_of

BATCH_BYTES = 16 << 20


def gather_entries(gather, tensors, mine, owner, expected=None):
    """Yields (tensor, its whole entry), in one order on all members: new tensors. mine: [(Extent, entry)] that this
    member gives. A tensor in an entry has the shape of its part, which for a whole tensor may be any, or is a number;
    other values, and numbers, are those of the first part. gather: the MemberGather. owner: of the entries, in
    messages. expected: see MemberGather. Raises ValueError for a tensor of another shape. Collective; blocks."""
    mine = sorted(mine, key=lambda pair: pair[0])
    forms = [_forms(tensors[part.number], part, entry, owner) for part, entry in mine]
    _, told = gather.objects([(tuple(part), form) for (part, _), form in zip(mine, forms)], expected)
    for batch in _batches(told):
        rows = [[row for row in of_member if row[0][0] in batch] for of_member in told]
        kinds = sorted(
            {f[1] for of_member in rows for _, form in of_member for f in form.values() if f[0] != "value"}, key=str
        )
        given = [(entry, form) for (part, entry), form in zip(mine, forms) if part.number in batch]
        found = []
        if kinds:
            _, _, found = gather.tensors([_packed(given, kind, tensors) for kind in kinds], "state", expected=expected)
        readers = [{kind: _Reader(parts[m]) for kind, parts in zip(kinds, found)} for m in range(len(rows))]
        entries = {number: {} for number in sorted(batch)}
        for of_member, reader in zip(rows, readers):
            for (number, begin, end), form in of_member:
                _join(entries[number], tensors[number], slice(begin, end), form, reader)
        for number, entry in entries.items():
            if entry:
                yield tensors[number], entry


def _forms(tensor, part, entry, owner):
    """For each key of an entry ("value", the value, the type of its device or None) or ("whole" or "cut", kind of
    tensor, shape)."""
    forms, count = {}, part.end - part.begin
    is_whole = count == tensor.numel()
    for key, value in entry.items():
        if not isinstance(value, torch.Tensor):
            forms[key] = "value", value, None
        elif value.dim() == 0 and (value.device.type == "cpu" or not is_whole):
            forms[key] = "value", value.cpu(), value.device.type
        elif is_whole or value.shape == (count,):
            kind = value.dtype, value.device.type
            forms[key] = "whole" if is_whole else "cut", kind, tuple(value.shape)
        else:
            raise ValueError(
                f"{owner}: the state {key!r} has the shape {list(value.shape)}, and its part of a parameter [{count}], "
                "so it cannot be divided: expected a layout of whole tensors (partition='tensors')"
            )
    return forms


class _Reader:
    """The flat tensor of one kind that a member has sent."""

    def __init__(self, tensor):
        self._tensor, self._at = tensor, 0

    def take(self, shape):
        count = torch.Size(shape).numel()
        self._at += count
        return self._tensor[self._at - count : self._at].view(shape)


def _batches(told):
    """Sets of numbers of tensors, whose entries together have about BATCH_BYTES."""
    sizes = {}
    for (number, _, _), form in (row for rows in told for row in rows):
        nbytes = sum(f[1][0].itemsize * torch.Size(f[2]).numel() for f in form.values() if f[0] != "value")
        sizes[number] = sizes.get(number, 0) + nbytes
    batch, total = set(), 0
    for number in sorted(sizes):
        if batch and total + sizes[number] > BATCH_BYTES:
            yield batch
            batch, total = set(), 0
        batch.add(number)
        total += sizes[number]
    if batch:
        yield batch


def _packed(entries, kind, tensors):
    """The values of one kind, one after the other. tensors: those to which the entries belong."""
    rows = ((entry[key], f) for entry, form in entries for key, f in form.items() if f[0] != "value")
    return joined([value.detach().reshape(-1) for value, f in rows if f[1] == kind], kind, tensors)


def _join(entry, tensor, part, form, reader):
    """Puts what one part has into the entry of its tensor: on the device of the tensor, where both are of one type."""
    for key, (how, *more) in form.items():
        if how == "value":
            value, device = more
            entry.setdefault(key, value if device in (None, "cpu") else value.to(place_of(device, [tensor])))
            continue
        kind, shape = more
        value = reader[kind].take(shape)
        device = place_of(kind[1], [tensor, value])
        if how == "whole":
            value = value.to(device, copy=True)
            entry[key] = like(tensor, value) if value.shape == tensor.shape else value
            continue
        if key not in entry:
            entry[key] = torch.empty_like(tensor, dtype=kind[0], device=device, requires_grad=False)
        flat(entry[key])[part].copy_(value)
