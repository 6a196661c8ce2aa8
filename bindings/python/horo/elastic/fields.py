"""The fields of a State: how a value of each type is compared, described and given to a rank that joins.

A field is read in two parts. `tensors()` are big: their bytes go from the memory of the donors into the memory of the
rank that joins. `rest()` is small, JSON, and comes first: it tells the joining rank which tensors there are. An adapter
has these methods; horo.torch.elastic.adapters has those of PyTorch.
"""

import json
import sys

from horo.elastic import buffers
from horo.elastic.buffers import PER_RANK, REPLICATED, STATE, Sharded, form_of
from horo.elastic.rest import CONTAINERS, Encoder, decode, is_tensor
from horo.elastic.sampler import Sampler


class Options:
    """What State was told about its fields."""

    def __init__(self, trust=False, what=STATE):
        """trust: values of unknown types are pickled. what: the beginning of messages."""
        self.trust, self.what = trust, what
        self.names = {}  # id of a parameter: its name, filled by modules


class Field:
    """Base: a plain value, such as a number, string, list or dict; with trust, any value that can be pickled."""

    word = "a plain value"  # the kind of the value, for messages: see word_of()
    is_replaced = True  # the State's attribute is replaced by `value` at the rank that joins

    def __init__(self, name, value, options):
        self.name, self.value, self.options = name, value, options
        self._made, self._new = [], set()

    def terms(self):
        """[(name, text)] that a rank that joins must have, too: types, shapes, dtypes. Known before any step."""
        self._encoded()  # refuses by name
        return [(self.name, "a value")]

    def saved_terms(self):
        """[(name, text)] that an object must have, too, which loads this field from a checkpoint; tensors aside."""
        return self.terms()

    def other_names(self):
        """What horo_state() would yield as well if tensors that have several names came under each."""
        return []

    def left_out(self):
        """Names of tensors that a checkpoint may have, and a load does not set."""
        return set()

    def of_checkpoint(self):
        """The field that is saved in a checkpoint and loaded from one. Collective over the world."""
        return self

    def is_current(self):
        """Of what of_checkpoint() returns: whether the ranks still have all of it."""
        return True

    def horo_state(self):
        """Yields (name, tensor, kind): kind is "replicated", "per rank" or a sharded(global shape, intervals). In the
        same order on all ranks, which may have made a dict in other orders."""
        _, tensors = self._encoded()
        for name, tensor in sorted(tensors, key=name_of):
            yield self._full(name), tensor, REPLICATED

    def rest(self):
        """JSON: all but the bytes of tensors, and their forms."""
        encoded, tensors = self._encoded()
        forms = [[self._full(name), buffers.kind_of(tensor), form_of(tensor)] for name, tensor in tensors]
        return {"value": encoded, "tensors": forms}

    def rest_of_tensors(self, forms):
        """rest() where a checkpoint has tensors of this field alone, of these forms by name: a dict of them."""
        names = [name.removeprefix(f"{self.name}.") for name in forms]
        value = {name: {"~tensor": place} for place, name in enumerate(names)} if forms else None
        if forms.keys() == {self.name}:
            if isinstance(self.value, dict):
                raise ValueError(f"{self.options.what}: {self.name} is a tensor in the checkpoint, and a dict here")
            value = {"~tensor": 0}
        return {"value": value, "tensors": [[name, "torch", form] for name, form in forms.items()]}

    def prepare(self, rest):
        """At the rank that joins: makes the memory. Returns what to fill, as horo_state() yields it."""
        self._rest = rest["value"]
        self._made = [(name, buffers.empty(kind, form), REPLICATED) for name, kind, form in rest["tensors"]]
        self._new = {name for name, _, _ in self._made}
        return sorted(self._made, key=name_of)

    def has_made(self, name):
        """Whether prepare() has made the memory of this tensor, which the value gets in finish()."""
        return name in self._new

    def finish(self):
        """At the rank that joins: the tensors are filled."""
        self._take(self._decoded())

    def _decoded(self):
        """What is encoded in the rest that prepare() has got."""
        return decode(self._rest, [tensor for _, tensor, _ in self._made], self.options.trust, self.options.what)

    def loaded(self):
        """All ranks of the world have loaded it from a checkpoint, and call this."""

    def give_up(self):
        """This rank was evicted in the middle of a step: forgets what belongs to that alone."""

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


def name_of(row):
    return row[0]


class InPlace(Field):
    """Tensors whose memory the joining rank has already: of an array, a tensor or an object with horo_state()."""

    word = None
    is_replaced = False

    def terms(self):
        return [(name, _form(tensor, kind)) for name, tensor, kind in self.horo_state()]

    def saved_terms(self):
        return []

    def horo_state(self):
        if is_tensor(self.value):
            yield self.name, self.value, REPLICATED
            return
        for name, tensor, kind in self.value.horo_state():
            if not is_tensor(tensor) or not (kind in (REPLICATED, PER_RANK) or isinstance(kind, Sharded)):
                raise TypeError(
                    f"{self.options.what}: horo_state() of the field {self.name!r} yields {name!r}, "
                    f"{type(tensor).__name__}, {kind!r}; expected a tensor that is 'replicated', 'per rank' or "
                    "sharded(global shape, intervals)"
                )
            yield self._full(name), tensor, kind

    def rest(self):
        return {"value": None, "tensors": []}

    def rest_of_tensors(self, forms):
        return InPlace.rest(self)

    def prepare(self, rest):
        return list(self.horo_state())

    def finish(self):
        pass


def _form(tensor, kind):
    """Equal on all ranks: of a sharded tensor, that of the whole."""
    if not isinstance(kind, Sharded):
        return form_of(tensor)
    return f"{form_of(tensor, kind.shape)}, sharded"


class StateDict(Field):
    """An object with state_dict() and load_state_dict(): schedulers, GradScaler, averages of models, Samplers."""

    word = None
    is_replaced = False

    def terms(self):
        self._encoded()
        return [(self.name, type(self.value).__name__)]

    def _content(self):
        return self.value.state_dict()

    def _take(self, value):
        self.value.load_state_dict(value)


class OfSampler(StateDict):
    word = "a Sampler"

    def terms(self):
        sampler = self.value
        text = f"Sampler of {sampler.length} samples, batches of {sampler.batch_size}, seed {sampler.seed}"
        return [(self.name, text + ", drop_last" * sampler.drop_last)]

    def saved_terms(self):
        """Batches may be others: the number of ranks may be, too."""
        return [(self.name, f"Sampler of {self.value.length} samples, seed {self.value.seed}")]


def adapter_of(value):
    """The class of the Field of a value, by its type. A State asks when it is made: later the field keeps it."""
    if isinstance(value, Sampler):
        return OfSampler
    if hasattr(value, "horo_state"):
        return InPlace
    if "torch" in sys.modules:
        from horo.torch.elastic.adapters import adapter_of_torch

        if (found := adapter_of_torch(value)) is not None:
            return found
    if is_tensor(value):
        return InPlace
    return StateDict if hasattr(value, "state_dict") and hasattr(value, "load_state_dict") else Field


def word_of(value):
    """The kind of a value. A field has values of one kind."""
    if (word := adapter_of(value).word) is not None:
        return word
    if is_tensor(value):
        return "a tensor" if buffers.kind_of(value) != "numpy" else "an array"
    return f"a {type(value).__name__}"


def check_assigned(name, adapter, before, value, trust):
    """Raises TypeError if this value cannot take the place of the one before in the field, whose Field is of the class
    `adapter`. Plain values may be of any type that can be given, also tensors."""
    is_plain = adapter is Field
    if is_plain and (trust or is_tensor(value) or isinstance(value, CONTAINERS)):
        return  # what is in a list is refused where it is given
    there, here = Field.word if is_plain else word_of(before), word_of(value)
    if is_plain and here == there:
        Encoder(name).encode(value)
    if here != there:
        raise TypeError(f"State.{name} was made with {there} and cannot become {here}: make the State with {here}")


def to_json(value):
    """Bytes; floats keep their bits."""
    return json.dumps(value, separators=(",", ":")).encode()


def from_json(data):
    return json.loads(bytes(data).decode())
