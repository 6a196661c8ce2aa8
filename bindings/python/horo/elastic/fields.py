"""The fields of a State: how a value of each type is compared, described and given to a rank that joins.

A field is read in two parts. `tensors()` are big: their bytes go from the memory of the donors into the memory of the
rank that joins. `rest()` is small, JSON, and comes first: it tells the joining rank which tensors there are. An adapter
has these methods; horo.torch.elastic.adapters has those of PyTorch.
"""

import json
import sys

from horo.elastic import buffers
from horo.elastic.buffers import PER_RANK, REPLICATED, Sharded, form_of
from horo.elastic.rest import Encoder, decode, is_tensor
from horo.elastic.sampler import Sampler


class Options:
    """What State was told about its fields."""

    def __init__(self, trust=False, names=None):
        """trust: values of unknown types are pickled. names: {id of a parameter: its name}, filled by modules."""
        self.trust, self.names = trust, {} if names is None else names


class Field:
    """Base: a plain value, such as a number, string, list or dict; with trust, any value that can be pickled."""

    is_replaced = True  # the State's attribute is replaced by `value` at the rank that joins

    def __init__(self, name, value, options):
        self.name, self.value, self.options = name, value, options
        self._made = []

    def terms(self):
        """[(name, text)] that a rank that joins must have, too: types, shapes, dtypes. Known before any step."""
        self._encoded()  # refuses by name
        return [(self.name, "a value")]

    def horo_state(self):
        """Yields (name, tensor, kind): kind is "replicated", "per rank" or a sharded(global shape, intervals)."""
        _, tensors = self._encoded()
        for name, tensor in tensors:
            yield self._full(name), tensor, REPLICATED

    def rest(self):
        """JSON: all but the bytes of tensors, and their forms."""
        encoded, tensors = self._encoded()
        forms = [[self._full(name), buffers.kind_of(tensor), form_of(tensor)] for name, tensor in tensors]
        return {"value": encoded, "tensors": forms}

    def prepare(self, rest):
        """At the rank that joins: makes the memory. Returns [(name, tensor)] to fill."""
        self._rest = rest["value"]
        self._made = [(name, buffers.empty(kind, form)) for name, kind, form in rest["tensors"]]
        return self._made

    def finish(self):
        """At the rank that joins: the tensors are filled."""
        self._take(decode(self._rest, [tensor for _, tensor in self._made], self.options.trust))

    def _take(self, value):
        self.value = value

    def _content(self):
        """What is encoded."""
        return self.value

    def _encoded(self):
        encoder = Encoder(self.name, self.options.trust)
        return encoder.encode(self._content()), encoder.tensors

    def _full(self, name):
        return f"{self.name}.{name}" if name else self.name


class InPlace(Field):
    """Tensors whose memory the joining rank has already: of an array, a tensor or an object with horo_state()."""

    is_replaced = False

    def terms(self):
        return [(name, form_of(tensor)) for name, tensor, kind in self.horo_state() if kind != PER_RANK]

    def horo_state(self):
        if is_tensor(self.value):
            yield self.name, self.value, REPLICATED
            return
        for name, tensor, kind in self.value.horo_state():
            if not is_tensor(tensor) or not (kind in (REPLICATED, PER_RANK) or isinstance(kind, Sharded)):
                raise TypeError(
                    f"horo.elastic.State: horo_state() of the field {self.name!r} yields {name!r}, "
                    f"{type(tensor).__name__}, {kind!r}; expected a tensor that is 'replicated', 'per rank' or "
                    "sharded(global shape, intervals)"
                )
            yield self._full(name), tensor, kind

    def rest(self):
        return {"value": None, "tensors": []}

    def prepare(self, rest):
        return [(name, tensor) for name, tensor, kind in self.horo_state() if kind == REPLICATED]

    def finish(self):
        pass


class StateDict(Field):
    """An object with state_dict() and load_state_dict(): schedulers, GradScaler, averages of models, Samplers."""

    is_replaced = False

    def terms(self):
        self._encoded()
        return [(self.name, type(self.value).__name__)]

    def _content(self):
        return self.value.state_dict()

    def _take(self, value):
        self.value.load_state_dict(value)


class OfSampler(StateDict):
    def terms(self):
        sampler = self.value
        text = f"Sampler of {sampler.length} samples, batches of {sampler.batch_size}, seed {sampler.seed}"
        return [(self.name, text + ", drop_last" * sampler.drop_last)]


def adapter_of(name, value, options):
    """The Field of a value, by its type. Nothing is encoded yet."""
    if isinstance(value, Sampler):
        return OfSampler(name, value, options)
    if hasattr(value, "horo_state"):
        return InPlace(name, value, options)
    if "torch" in sys.modules:
        from horo.torch.elastic.adapters import adapter_of_torch

        if (found := adapter_of_torch(name, value, options)) is not None:
            return found
    if is_tensor(value):
        return InPlace(name, value, options)
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return StateDict(name, value, options)
    return Field(name, value, options)


def to_json(value):
    """Bytes; floats keep their bits."""
    return json.dumps(value, separators=(",", ":")).encode()


def from_json(data):
    return json.loads(bytes(data).decode())
