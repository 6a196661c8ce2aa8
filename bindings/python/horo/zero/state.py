"""The state of whole parameters, joined of the pieces of the members, some MiB at a time."""

import torch

from horo.zero.pieces import MASTER, flat, like

BATCH_BYTES = 16 << 20


def _forms(piece, state, owner):
    """For each key of a piece's state ("value", the value, the type of its device or None) or ("whole" or "cut", kind
    of tensor, shape)."""
    forms = {}
    for key, value in piece.entry(state).items():
        if not isinstance(value, torch.Tensor):
            forms[key] = "value", value, None
        elif value.dim() == 0 and (value.device.type == "cpu" or not piece.is_whole):
            forms[key] = "value", value.cpu(), value.device.type
        elif piece.is_whole or value.shape == piece.tensor.shape:
            kind = value.dtype, value.device.type
            forms[key] = "whole" if piece.is_whole else "cut", kind, tuple(value.shape)
        else:
            raise ValueError(
                f"horo.zero: the state {key!r} of {owner} has the shape {list(value.shape)}, and its piece of a "
                f"parameter {list(piece.tensor.shape)}, so it cannot be divided: expected partition='tensors'"
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


def collect(params, pieces, state, gathers, owner):
    """Yields (parameter, its state as the optimizer of whole parameters has it), in one order on all members. pieces:
    those that this rank gives. gathers: two functions, of an object and of (tensors, name), that return a list by
    member, and for each tensor a list by member. owner: the name of the optimizer's class. Collective; blocks. The
    tensors are new."""
    of_object, of_tensors = gathers
    pieces = sorted(pieces, key=lambda piece: piece.part)
    forms = [_forms(piece, state, owner) for piece in pieces]
    told = of_object([(tuple(piece.part), form) for piece, form in zip(pieces, forms)])
    for batch in _batches(told):
        rows = [[row for row in of_member if row[0][0] in batch] for of_member in told]
        kinds = sorted(
            {f[1] for of_member in rows for _, form in of_member for f in form.values() if f[0] != "value"}, key=str
        )
        mine = [(piece.entry(state), form) for piece, form in zip(pieces, forms) if piece.part.number in batch]
        found = of_tensors([_packed(mine, kind) for kind in kinds], "state") if kinds else []
        readers = [{kind: _Reader(parts[m]) for kind, parts in zip(kinds, found)} for m in range(len(rows))]
        entries = {number: {} for number in sorted(batch)}
        for of_member, reader in zip(rows, readers):
            for (number, begin, end), form in of_member:
                _join(entries[number], params[number], slice(begin, end), form, reader)
        for number, entry in entries.items():
            if entry and not _is_copy(entry, params[number]):
                yield params[number], entry


def _is_copy(entry, param):
    """Whether there is nothing but a master copy that no step has changed."""
    return entry.keys() == {MASTER} and torch.equal(entry[MASTER], param.detach().float())


def _batches(told):
    """Sets of numbers of parameters, whose state together has about BATCH_BYTES."""
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


def _packed(entries, kind):
    """The tensors of one kind, one after the other."""
    rows = ((entry[key], f) for entry, form in entries for key, f in form.items() if f[0] != "value")
    found = [value.detach().reshape(-1) for value, f in rows if f[1] == kind]
    return torch.cat(found) if found else torch.empty(0, dtype=kind[0], device=kind[1])


def _join(entry, param, part, form, reader):
    """Puts what one piece has into the state of its parameter."""
    for key, (how, *more) in form.items():
        if how == "value":
            value, device = more
            on = param.device if device == param.device.type else device
            entry.setdefault(key, value if device in (None, "cpu") else value.to(on))
            continue
        (dtype, device), shape = more
        value = reader[dtype, device].take(shape)
        if how == "whole":
            entry[key] = like(param, value.clone()) if value.shape == param.shape else value.clone()
            continue
        if key not in entry:
            entry[key] = torch.empty_like(param, dtype=dtype, device=device, requires_grad=False)
        flat(entry[key])[part].copy_(value)


def rows_of(value, place, count):
    """The part of the rows of a tensor that a member at this place of so many keeps. Other values as they are."""
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value
    first, last = len(value) * place // count, len(value) * (place + 1) // count
    rows = value[first:last].clone()
    rows.horo_rows = tuple(value.shape), first, last
    return rows
