"""horo.checkpoint.load(): new memory is written as it is read, memory in use when all is verified."""

import copy
import json

import numpy
import pytest
import torch
from test_checkpoint import assert_equal, checkpoint, saved, trained

from horo.checkpoint.content import Content, fields_of
from horo.checkpoint.library import Reader
from horo.errors import HoroError


def test_moments_are_new_memory_and_what_the_script_has_is_in_use(tmp_path):
    model, optimizer = trained()
    strided, values = torch.zeros(4, 3).t(), numpy.zeros(3)
    x = {"model": model, "optimizer": optimizer, "strided": strided, "values": values, "list": [torch.ones(2)]}
    reader = Reader(str(saved(tmp_path / "x", x)))
    room = Content(fields_of(x)).room(reader.index)
    reader.close()
    new = {tensor.name for tensor, _ in room if tensor.is_new}
    fields = {name.partition(".")[0] for name in new}
    assert fields == {"optimizer", "strided", "list"}
    assert len([name for name in new if name.startswith("optimizer.")]) == 3 * len(list(model.parameters()))
    assert len(room) == len(new) + len(model.state_dict()) + 1


def test_damage_in_the_moments_leaves_the_model_as_it_is(tmp_path):
    model, optimizer = trained()
    path = saved(tmp_path / "x", {"model": model, "optimizer": optimizer})
    (part,) = path.glob("*.safetensors")
    index = json.loads((path / "index.json").read_text())
    (piece,) = next(one for one in index["tensors"] if one["name"].endswith("exp_avg"))["pieces"]
    data = bytearray(part.read_bytes())
    data[8 + int.from_bytes(data[:8], "little") + piece["offset"]] ^= 1
    part.write_bytes(data)
    other, its = trained(1)
    before = copy.deepcopy((other.state_dict(), its.state_dict()))
    with pytest.raises(HoroError, match="checksum"):
        checkpoint.load(path, {"model": other, "optimizer": its})
    assert_equal((other.state_dict(), its.state_dict()), before)
