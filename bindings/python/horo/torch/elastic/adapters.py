"""The fields of horo.elastic.State that are PyTorch's: modules and optimizers.

Their tensors have the names that torch.distributed.checkpoint gives to a flattened state: `model.0.weight` for a field
`model`, `optimizer.state.0.weight.exp_avg` for the optimizer of its parameters, by the parameter's name.
"""

import torch

from horo import _default
from horo._compression import codec_of
from horo._sets import global_process_set
from horo._specs import op_name
from horo.elastic.buffers import PER_RANK, REPLICATED, Sharded, form_of, kind_of, sharded
from horo.elastic.fields import Field, InPlace, StateDict, name_of
from horo.elastic.rest import Encoder
from horo.torch.optimizer_state import load_exactly, saves_plainly
from horo.torch.sharding import my_member

EXTRA_STATE = "_extra_state"  # the end of torch's names of what get_extra_state() of a module returns
GradScaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)  # torch 2.1 and 2.2 have the latter


def adapter_of_torch(value):
    """The class of the Field of a value of PyTorch; None: of another kind, or one with state_dict()."""
    if isinstance(value, torch.nn.Module):
        return OfModule
    if isinstance(value, torch.optim.Optimizer):
        return OfDivided if hasattr(value, "horo_rest") else OfOptimizer
    return OfScaler if isinstance(value, GradScaler) else None


def options_of(optimizer):
    """[(name, text)]: what a DistributedOptimizer was made with."""
    options = getattr(optimizer, "_horo_options", None)
    if options is None:
        return [("is", "no")]
    params = [param for group in optimizer.param_groups for param in group["params"]]
    places = {id(param): place for place, param in enumerate(params)}
    compression = options["compression"]
    codec = codec_of(compression)
    texts = {name: str(value) for name, value in options.items()}
    texts |= {
        "op": op_name(options["op"]),
        "compression": getattr(compression, "__name__", type(compression).__name__) if codec is None else codec or "no",
        "backward_passes_per_step": str(optimizer.backward_passes_per_step),
        "groups": str([[places.get(id(param)) for param in group] for group in options["groups"]]),
        "process_set": "the world" if options["process_set"].process_set_id == 0 else "a part of the ranks",
    }
    rows = [(name, text) for name, text in texts.items() if name != "num_groups"]
    return [("is", "yes"), *rows, *(optimizer.horo_terms() if hasattr(optimizer, "horo_terms") else ())]


class OfModule(InPlace):
    """Parameters, and buffers, in which the ranks may differ, as in what get_extra_state() of its modules returns. A
    tensor in two places is one, under its first name; in a checkpoint, under the first that state_dict() has."""

    word = "a module"

    def __init__(self, name, value, options):
        super().__init__(name, value, options)
        for one, param in value.named_parameters():
            options.names.setdefault(id(param), (one, self._full(one)))
        self._extra, self._left_out = {}, set()
        for place, module in value.named_modules():
            if type(module).get_extra_state is not torch.nn.Module.get_extra_state:
                self._extra[f"{place}.{EXTRA_STATE}".lstrip(".")] = module

    def terms(self):
        self._encoded()  # refuses by name
        return self.forms()

    def forms(self):
        """[(name, form)] of its parameters and buffers."""
        return [(name, form_of(tensor)) for name, tensor, _ in self._own()]

    def horo_state(self):
        yield from self._own()
        for name, tensor in sorted(self._encoded()[1], key=name_of):
            yield self._full(name), tensor, PER_RANK

    def of_checkpoint(self):
        """Without the buffers that state_dict() does not have: __init__() makes them."""
        for place, module in self.value.named_modules(remove_duplicate=False):
            self._left_out |= {f"{place}.{name}".lstrip(".") for name in module._non_persistent_buffers_set}
        return self

    def left_out(self):
        return {self._full(name) for name in self._left_out}

    def rest(self):
        return Field.rest(self) if self._extra else super().rest()

    def rest_of_tensors(self, forms):
        """The extra states of which there are all tensors get these, and are else as they are here."""
        kept = {name: module for name, module in self._extra.items() if self._has_all(forms, name, module)}
        if not kept:
            return super().rest_of_tensors(forms)
        encoded, tensors = self._encoded(kept)
        rows = [(self._full(name), kind_of(tensor)) for name, tensor in tensors]
        return {"value": encoded, "tensors": [[name, kind, forms[name]] for name, kind in rows]}

    def _has_all(self, forms, name, module):
        """Whether there are tensors in the extra state of this module, and all of them among the forms."""
        try:
            _, tensors = self._encoded({name: module})
        except TypeError:  # of a type that no checkpoint has
            return False
        return bool(tensors) and all(self._full(one) in forms for one, _ in tensors)

    def prepare(self, rest):
        own = {name: (name, tensor, kind) for name, tensor, kind in self._own()}
        made = Field.prepare(self, {**rest, "tensors": [row for row in rest["tensors"] if row[0] not in own]})
        more = [(name, tensor, PER_RANK) for name, tensor, _ in made]
        found = {name: tensor for name, tensor, _ in (*own.values(), *more)}
        self._made = [(name, found[name], PER_RANK) for name, _, _ in rest["tensors"]]
        return [*own.values(), *more]

    def finish(self):
        if self._rest is None:  # of a checkpoint without extra states
            return
        found = self._decoded()
        for name, module in self._extra.items():
            if name in found:
                module.set_extra_state(found[name])

    def _encoded(self, modules=None):
        """What get_extra_state() of these modules returns, by default of all, by name."""
        encoder, found = Encoder(self.name, self.options.trust), {}
        for name, module in (self._extra if modules is None else modules).items():
            try:
                found[name] = encoder.encode(module.get_extra_state(), f".{name}")
            except TypeError as error:
                where = f"{self.options.what}: get_extra_state() of a {type(module).__name__}"
                raise TypeError(f"{where}: {str(error).removeprefix('horo: ')}") from error
        return found, encoder.tensors

    def _own(self):
        """Rows of horo_state(), each tensor once."""
        for is_first, name, tensor, kind in self._named():
            if not is_first:
                continue
            if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
                raise ValueError(f"{self.options.what}: {self._full(name)} has no shape yet: run a forward pass first")
            yield self._full(name), tensor, kind

    def other_names(self):
        for is_first, name, tensor, kind in self._named():
            if not is_first:
                yield self._full(name), tensor, kind

    def _named(self):
        """Yields (whether it is the first name of the tensor, name, tensor, kind), without the names that are left
        out: under another name state_dict() may have the tensor."""
        for pairs, kind in ((self.value.named_parameters, REPLICATED), (self.value.named_buffers, PER_RANK)):
            known = set()
            for name, tensor in pairs(remove_duplicate=False):
                if name not in self._left_out:
                    yield id(tensor) not in known, name, tensor, kind
                    known.add(id(tensor))


class OfScaler(StateDict):
    def give_up(self):
        if self.value.is_enabled():
            self.value._per_optimizer_states.clear()  # as update() does: unscale_() may have been called


class OfOptimizer(Field):
    """Options of the groups and the state. A rank that joins may have no state yet: it is made of the rest."""

    word = "an optimizer"
    is_replaced = False

    def terms(self):
        self._encoded()
        kind = next(one.__name__ for one in type(self.value).__mro__ if not one.__module__.startswith("horo."))
        rows = [(self.name, f"{kind}, {len(self.value.param_groups)} groups")]
        for name, param in zip(self._names(), self._params()):
            rows.append((self._full(f"params.{name}"), form_of(param)))
        return [*rows, *((self._full(f"distributed.{name}"), text) for name, text in options_of(self.value))]

    def saved_terms(self):
        """What distributes it may be other options."""
        return [row for row in self.terms() if not row[0].startswith(self._full("distributed."))]

    def loaded(self):
        if hasattr(self.value, "horo_divide"):
            self.value.horo_divide(global_process_set)

    def give_up(self):
        self.value.zero_grad(set_to_none=True)

    def _params(self):
        return [param for group in self.value.param_groups for param in group["params"]]

    def _names(self):
        """Of the parameters in the order of the groups: those of the State's modules, with the name of the field where
        two of them have one name; or the optimizer's places."""
        found = [self.options.names.get(id(param), (str(i), str(i))) for i, param in enumerate(self._params())]
        short, full = zip(*found) if found else ((), ())
        return list(short if len(set(short)) == len(short) else full)

    def _content(self):
        return self._by_name(self.value.state_dict())

    def _take(self, value):
        load_exactly(self.value, self._by_number(value))

    def _by_name(self, content):
        """A state_dict() with the names of the parameters in the place of their numbers."""
        numbers = [number for group in content["param_groups"] for number in group["params"]]
        names = dict(zip(numbers, self._names()))
        state = {names.get(number, number): entry for number, entry in content["state"].items()}
        return {**content, "state": state}

    def _by_number(self, content):
        numbers = [number for group in content["param_groups"] for number in group["params"]]
        of_name = dict(zip(self._names(), numbers))
        state = {of_name.get(name, name): entry for name, entry in content["state"].items()}
        return {**content, "state": state}


class OfDivided(OfOptimizer):
    """Of an optimizer whose ranks divide its state, and deal it anew among those that are there. horo_rest() is what
    the ranks have alike, and horo_take(rest) sets it. While it is None, before the state is divided, each has all.
    horo_gather(take) is its state_dict() on all ranks, with take(state of a parameter, members that divide it).
    horo_divide(process_set): all ranks of the set have loaded the same state."""

    def _content(self):
        rest = self.value.horo_rest()
        return super()._content() if rest is None else {**self._by_name(rest), "horo_rest": True}

    def _take(self, value):
        if value.pop("horo_rest", False):
            self.value.horo_take(self._by_number(value))
        else:
            super()._take(value)

    def of_checkpoint(self):
        """Each rank keeps some rows of each tensor of the state, if no method or hook of another class reads them."""
        members = None

        def rows_of(entry, among):
            nonlocal members
            members, place = among, among.index(my_member())
            return {key: _rows_of(value, place, len(among)) for key, value in entry.items()}

        content = self.value.horo_gather(*[rows_of] * saves_plainly(self.value))
        return OfRows(self.name, self.value, self.options, content, members)


def _rows_of(value, place, count):
    """The rows of a tensor that a member at this place of so many keeps. Other values as they are."""
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value
    first, last = len(value) * place // count, len(value) * (place + 1) // count
    rows = value[first:last].clone()
    rows.horo_rows = tuple(value.shape), first, last
    return rows


class OfRows(OfOptimizer):
    """Of a divided optimizer, for one checkpoint: each rank has some rows of each tensor that is divided."""

    def __init__(self, name, value, options, content, members):
        """content: its state_dict(), which is gone with this Field; tensors of which this rank has some rows have an
        attribute horo_rows, (shape, first, last). members: the numbers of the ranks that have the others, or None."""
        super().__init__(name, value, options)
        self._rows, self._members = content, members

    def is_current(self):
        return set(self._members or ()) <= set(_default.members())

    def horo_state(self):
        for name, tensor, kind in super().horo_state():
            rows = getattr(tensor, "horo_rows", None)
            yield name, tensor, kind if rows is None else sharded(rows[0], [rows[1:]])

    def rest(self):
        found, rows = super().rest(), {name: (tensor, kind) for name, tensor, kind in self.horo_state()}
        for form in found["tensors"]:
            tensor, kind = rows[form[0]]
            if isinstance(kind, Sharded):
                form[2] = form_of(tensor, kind.shape)
        return found

    def _content(self):
        return self._by_name(self._rows)
