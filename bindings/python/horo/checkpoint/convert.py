"""Converts between a checkpoint of horo, a file of torch.save and a folder of torch.distributed.checkpoint (DCP).

A checkpoint becomes a dict of its fields: {"model": {name: tensor}, "optimizer": state_dict(), "epoch": 7}. Such a dict
becomes a checkpoint: a field that is a dict of tensors has them under its name. The state of an optimizer has the names
of its parameters in a checkpoint of horo and in DCP, and their places in a file of torch.save.
"""

import os
import tempfile

import torch

from horo.checkpoint.content import Content, give, owner_of
from horo.checkpoint.library import SHARDED, Reader, Saver, Tensor
from horo.elastic.buffers import REPLICATED, empty
from horo.elastic.fields import Field, InPlace, Options
from horo.elastic.rest import decode, is_tensor
from horo.errors import HoroError
from horo.torch.elastic.adapters import EXTRA_STATE

CHECKPOINT, PT, DCP = "a checkpoint of horo", "a file of torch.save", "a folder of torch.distributed.checkpoint"
_PT_ENDS = (".pt", ".pth")


class Named(InPlace):
    """Tensors by name, such as a state_dict() of a module."""

    def horo_state(self):
        for name, tensor in self.value.items():
            yield self._full(name), tensor, REPLICATED


def kind_of(path):
    """What is at a path. Raises ValueError if it is none of the three kinds."""
    if os.path.isfile(os.path.join(path, "index.json")):
        return CHECKPOINT
    if os.path.isfile(os.path.join(path, ".metadata")):
        return DCP
    if os.path.isfile(path) and path.endswith(_PT_ENDS):
        return PT
    raise ValueError(f"{path} is none of: {CHECKPOINT}, {DCP}, {PT} (.pt, .pth)")


def convert(source, target, trust=False, step=0):
    """Returns the kinds of both. trust: DCP's .metadata is a pickle, which can run code. step: of a checkpoint that is
    written. Raises ValueError for paths that cannot be converted, HoroError or OSError for files."""
    kind = kind_of(source)
    if step < 0:
        raise ValueError(f"--step {step}: expected a whole number")
    if os.path.exists(target):
        raise ValueError(f"{target} exists already")
    if target.endswith(_PT_ENDS):
        wanted = PT
        if not os.path.isdir(folder := os.path.dirname(os.path.abspath(target))):
            raise ValueError(f"{target}: there is no folder {folder}")
    else:
        wanted = DCP if kind == CHECKPOINT else CHECKPOINT
    if kind == wanted:
        raise ValueError(f"{source} is {kind} already")
    values = _values_of(source, kind, wanted == PT, trust)
    if wanted == CHECKPOINT:
        _write_checkpoint(target, values, step)
    else:
        {PT: _write_pt, DCP: _write_dcp}[wanted](target, values)
    return kind, wanted


def _values_of(source, kind, by_number, trust):
    if kind == CHECKPOINT:
        return values_of_checkpoint(source, by_number, trust)
    if kind == PT:
        try:
            values = torch.load(source, map_location="cpu", weights_only=not trust)
        except Exception as error:  # of pickle, or of torch
            raise HoroError(f"{source} cannot be loaded: {str(error).splitlines()[0]}") from None
    else:
        values = _values_of_dcp(source, trust)
    if not isinstance(values, dict) or not all(type(name) is str for name in values):
        raise ValueError(f"{source} has a {type(values).__name__}; expected a dict of fields by name")
    return {"model": values} if values and all(map(is_tensor, values.values())) else values


def _values_of_dcp(source, trust):
    if not trust:
        raise ValueError(
            f"{source}/.metadata is a pickle, which can run code: --trust, if you know where it comes from"
        )
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(source))) as folder:
        dcp_to_torch_save(source, os.path.join(folder, "all.pt"))
        return torch.load(os.path.join(folder, "all.pt"), map_location="cpu", weights_only=False)


def values_of_checkpoint(path, by_number=False, trust=False):
    """{field: value}. by_number: the state of an optimizer has the places of its parameters, as state_dict() has."""
    reader = Reader(path)
    rest = reader.index["rest"]
    tensors, room = {}, []
    for one in reader.index["tensors"]:
        shape = tuple(one["shape"])
        tensor = tensors[one["name"]] = empty("torch", f"{one['dtype']}{list(shape)}")
        whole = ((0, shape[0] if shape else 1),) if one["kind"] == "sharded" else ()
        kind = SHARDED if whole else 0
        room.append(Tensor(one["name"], one["dtype"], shape, kind, whole, address=tensor.data_ptr()))
    reader.load(None, room)
    reader.close()
    options = Options(trust, path)
    return {name: _value_of(name, rest, tensors, by_number, options) for name in rest["fields"]}


def _value_of(name, rest, tensors, by_number, options):
    field = rest["fields"][name]
    own = [row[0] for row in field["tensors"]]
    value = field["value"]
    if value is not None:
        value = decode(value, [tensors[full] for full in own], options.trust, options.what)
    fulls = [full for full in tensors if full != name and owner_of(full, rest["fields"]) == name]
    by_name = {full[len(name) + 1 :]: tensors[full] for full in fulls}
    if value is None and not own:
        return tensors[name] if name in tensors else by_name
    if isinstance(value, dict) and value and all(str(key).endswith(EXTRA_STATE) for key in value):
        return {one: tensor for one, tensor in by_name.items() if f"{name}.{one}" not in own} | value
    head = f"{name}.params."
    params = [term[0][len(head) :] for term in rest["terms"].get(name) or () if term[0].startswith(head)]
    if not params or not isinstance(value, dict) or not {"state", "param_groups"} <= set(value):
        return value
    groups, numbers = value["param_groups"], dict(zip(params, range(len(params))))
    if by_number:
        return {**value, "state": {numbers.get(key, key): entry for key, entry in value["state"].items()}}
    named = [{**group, "params": [params[number] for number in group["params"]]} for group in groups]
    return {**value, "param_groups": named}


def _write_checkpoint(target, values, step):
    options = Options()
    kinds = {
        name: Named if _is_named(value) else InPlace if is_tensor(value) else Field for name, value in values.items()
    }
    content = Content([kinds[name](name, value, options) for name, value in values.items()])
    pairs, saver = content.tensors(), Saver()
    rest = content.rest({}, has_terms=False)
    saver.begin(None, os.path.abspath(target), rest, [tensor for _, tensor in pairs], step=step)
    give(saver, pairs)
    saver.start()
    saver.wait()


def _is_named(value):
    return (
        isinstance(value, dict)
        and bool(value)
        and all(type(name) is str for name in value)
        and all(map(is_tensor, value.values()))
    )


def _write_pt(target, values):
    beside = f"{target}.tmp"
    try:
        torch.save(_plain(values), beside)
        os.rename(beside, target)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise


def _plain(value):
    """Values that torch.load(weights_only=True) takes."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    if type(value).__module__ == "numpy":
        return torch.as_tensor(value) if is_tensor(value) else value.item()
    return value


def _write_dcp(target, values):
    import torch.distributed.checkpoint as dcp

    dcp.save(values, checkpoint_id=target, no_dist=True)
