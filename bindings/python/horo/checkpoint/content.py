"""Content: the fields of a State or of a dict as a checkpoint has them, tensors by name and all else as JSON."""

import json
import os
import sys
import typing

from horo.checkpoint.library import PER_RANK, REPLICATED, SHARDED, Tensor
from horo.elastic import buffers
from horo.elastic.buffers import Sharded, buffer_of, buffer_to_set, check_has_values, form_as_text
from horo.elastic.fields import InPlace, Options, adapter_of
from horo.elastic.rest import is_tensor

_KINDS = {buffers.REPLICATED: REPLICATED, buffers.PER_RANK: PER_RANK}
DTYPES = {
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
}


NAMES = ". An optimizer's parameters have the names of the modules that are given with it: give the same modules"


class Row(typing.NamedTuple):
    """A tensor with its name and kind, as horo_state() yields it."""

    name: str
    tensor: object
    kind: object


def path_text(path, what):
    """The absolute path of a folder, as a text. Raises ValueError if it is none."""
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str) or not text:
        raise ValueError(f"{what}: the path {path!r}; expected the name of a folder")
    return os.path.abspath(text)


def fields_of(values, trust=False, what="horo.checkpoint"):
    """A Field for each value of a dict, by name: ranks may have made it in other orders. what: what the script calls.
    Raises TypeError for a value of a type that cannot be saved, with its name."""
    options = Options(trust, what)
    return [adapter_of(value)(name, value, options) for name, value in sorted(values.items(), key=lambda pair: pair[0])]


def owner_of(name, fields):
    """The field to which a tensor belongs, or None: that with the longest name, as `net` and `net.ema` may be two."""
    while name and name not in fields:
        name = name.rpartition(".")[0]
    return name or None


def _check(row, what):
    """Raises ValueError, with the name, for a tensor that no checkpoint can have."""
    name, tensor, _ = row
    if hasattr(tensor, "to_local"):
        raise ValueError(
            f"{what}: the tensor {name} is a DTensor; expected a plain one. DTensors are for "
            "torch.distributed.checkpoint, over the backend 'horo'"
        )
    check_has_values(name, tensor, what)
    if (dtype := _dtype_of(tensor)) not in DTYPES:
        raise ValueError(f"{what}: the tensor {name} is of {dtype}; expected one of {', '.join(sorted(DTYPES))}")


def _dtype_of(tensor):
    return str(tensor.dtype).replace("torch.", "")


def _described(row, alias_of=-1):
    """The Tensor of a row."""
    name, tensor, kind = row
    dtype = _dtype_of(tensor)
    if isinstance(kind, Sharded):
        return Tensor(name, dtype, kind.shape, SHARDED, kind.intervals, alias_of)
    return Tensor(name, dtype, tuple(tensor.shape), _KINDS[kind], (), alias_of)


def _memory_of(tensor):
    """What two tensors have in common that are one, or None."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        if tensor.layout is not torch.strided or not tensor.numel():
            return None
        form = tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.is_conj(), tensor.is_neg()
        return tensor.device, tensor.data_ptr(), *form
    return (tensor.ctypes.data, tensor.dtype.str, tensor.shape, tensor.strides) if tensor.size else None


class Content:
    """The fields of one object on this rank."""

    def __init__(self, fields, what="horo.checkpoint"):
        """Collective over the world. what: what the script calls, for messages."""
        self.fields, self.what = [field.of_checkpoint() for field in fields], what
        self._rows = []  # of room()

    def is_current(self):
        """Not if a rank was lost that had a part of it: then a save of it fails on all ranks, and is made anew."""
        return all(field.is_current() for field in self.fields)

    # For a save

    def tensors(self):
        """[(Row, Tensor)]: those to save, with the second and further names of each."""
        rows, places, found = [], {}, []
        names = {field.name for field in self.fields}
        for field in self.fields:
            for row in (Row(*row) for row in (*field.horo_state(), *field.other_names())):
                if (owner := owner_of(row.name, names)) != field.name:
                    raise ValueError(
                        f"{self.what}: the tensor {row.name} of the field {field.name!r} has a name of the field "
                        f"{owner!r}: give one of these fields another name"
                    )
                rows.append(row)
        for place, row in enumerate(rows):
            _check(row, self.what)
            memory = _memory_of(row.tensor)
            first = place if memory is None or isinstance(row.kind, Sharded) else places.setdefault(memory, place)
            found.append((row, _described(row, -1 if first == place else first)))
        return found

    def rest(self, more, has_terms=True):
        """Bytes of JSON: what is no tensor. more: a dict, beside the fields. has_terms: the objects that load it are
        compared with those that were saved."""
        fields = {field.name: field.rest() for field in self.fields}
        terms = {field.name: field.saved_terms() for field in self.fields} if has_terms else {}
        return json.dumps({**more, "fields": fields, "terms": terms}, separators=(",", ":")).encode()

    # For a load

    def check(self, index, path):
        """Raises ValueError, with the name, for what the checkpoint does not have, or has in another form."""
        rest = index["rest"]
        if "fields" not in rest:
            return self._check_tensors_alone(index, path)
        for field in self.fields:
            if field.name not in rest["fields"]:
                raise ValueError(_no_field(field.name, index, path))
            if (terms := rest["terms"].get(field.name)) is None:
                continue
            here, there = dict(field.saved_terms()), dict(map(tuple, terms))
            if not here and there == {field.name: "a value"}:  # a state_dict() that becomes that of a module
                continue
            for name in (*here, *there):
                if here.get(name) != there.get(name):
                    text = f"{path} has {there.get(name, 'nothing')} as {name}; expected {here.get(name, 'nothing')}"
                    raise ValueError(text + NAMES * name.startswith(f"{field.name}.params."))

    def _check_tensors_alone(self, index, path):
        """Of a checkpoint that was made of a file of safetensors."""
        names = {name: set() for name in self._names(index)}
        for one in index["tensors"]:
            if (owner := owner_of(one["name"], names)) != one["name"] and owner is not None:
                names[owner].add(one["name"].removeprefix(f"{owner}."))
        for field in self.fields:
            if not isinstance(field, InPlace) and not _is_dict_of(field.value, names[field.name]):
                another = "another " * isinstance(field.value, dict)
                raise ValueError(
                    f"{path} was made of a file of safetensors and has tensors alone; expected modules, tensors and "
                    f"dicts of tensors, of the same names or empty, to load it into, and {field.name} is {another}"
                    f"{type(field.value).__name__}"
                )

    def room(self, index):
        """[(Tensor, Buffer)]: the memory that a load fills."""
        self._rows.clear()
        fields = index["rest"].get("fields", {})
        forms, found = {name: {} for name in self._names(index)}, []
        for one in index["tensors"]:
            if (owner := owner_of(one["name"], forms)) is not None:
                forms[owner][one["name"]] = form_as_text(one["dtype"], one["shape"])
        for field in self.fields:
            rest = fields.get(field.name)
            if rest is None or (rest["value"] is None and not rest["tensors"]):
                rest = field.rest_of_tensors(forms[field.name])
            rows = [Row(*row) for row in field.prepare(rest)]
            for row in rows:
                _check(row, self.what)
            self._rows += rows
            for row, buffer in [(row, buffer_to_set(*row, self.what)) for row in rows]:
                is_new = buffer.is_copy or field.has_made(row.name)
                found.append((_described(row)._replace(address=buffer.address, is_new=is_new), buffer))
        return found

    def tied(self, index):
        """[[(Tensor, bytes)]]: those that are one tensor here, and several in the checkpoint. After room()."""
        alias_of = {one["name"]: one.get("alias_of") or one["name"] for one in index["tensors"]}
        groups = {}
        for row in (*self._rows, *(Row(*row) for field in self.fields for row in field.other_names())):
            memory = _memory_of(row.tensor)
            if memory is not None and row.name in alias_of:
                groups.setdefault(memory, {}).setdefault(alias_of[row.name], (_described(row), row.tensor.nbytes))
        return [list(group.values()) for group in groups.values() if len(group) > 1]

    def check_left(self, index, tensors, path):
        """Raises ValueError if the checkpoint has a tensor of one of the fields that is not loaded."""
        names = {one.name for one in tensors}.union(*map(_other_names_of, self.fields))
        own, fields = {field.name for field in self.fields}, self._names(index)
        for one in index["tensors"]:
            is_left = one["name"] not in names and not one.get("alias_of")
            if is_left and owner_of(one["name"], fields) in own:
                raise ValueError(f"{path} has the tensor {one['name']}, which the object to load does not have")

    def _names(self, index):
        """Of the fields to load, and of those that the checkpoint has beside them."""
        return {field.name for field in self.fields}.union(index["rest"].get("fields", ()))


def _is_dict_of(value, names):
    """Whether a value can become the dict of the tensors of these names: it is empty, or has tensors of them."""
    if not isinstance(value, dict) or not names:
        return False
    return not value or (set(value) == names and all(one is None or is_tensor(one) for one in value.values()))


def _no_field(name, index, path):
    """The message for a field that a checkpoint does not have."""
    fields = index["rest"]["fields"]
    text = f"{path} has no field {name!r}; it has {', '.join(fields)}"
    for one in index["tensors"]:
        owner = owner_of(one["name"], fields)
        if one["name"] == f"{owner}.{name}":  # `convert` takes a dict of tensors alone for a state_dict()
            return f"{text}, which has the tensor {one['name']}: load {{{owner!r}: {{{name!r}: ...}}}}"
    return text


def _other_names_of(field):
    return field.left_out() | {Row(*row).name for row in field.other_names()}


def rest_of(index):
    """What a State takes beside the tensors. A checkpoint that was made of another file has the step of the index."""
    return {"step": index["step"]} | index["rest"]


def give(saver, pairs):
    """Copies what this rank gives of each tensor into the memory of the saver. pairs: of tensors()."""
    for place, (row, _) in enumerate(pairs):
        first, count = saver.part(place)
        if not count:
            continue
        is_whole = not row.tensor.shape or count == row.tensor.shape[0]
        buffer = buffer_of(row.name, row.tensor if is_whole else row.tensor[first : first + count])
        saver.take(place, buffer.address)
