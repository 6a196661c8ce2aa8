"""Division: what a divided optimizer has on this rank: the layout, the pieces, and their state."""

import collections
import itertools

import torch

import horo
from horo.zero.exchange import Exchange, my_id
from horo.zero.gather import Chunks
from horo.zero.layout import Layout
from horo.zero.pieces import Piece, check_dense, check_gradient
from horo.zero.state import collect


def kind_of(param):
    """What the parameters of one gather have in common."""
    return param.dtype, param.device.type


class Division:
    """Of a job whose members stay."""

    has_buddies = False

    def __init__(self, owner, process_set, names, is_whole, masters):
        """owner: the name of the optimizer's class. names: {parameter: its name}. is_whole: parameters are not
        divided. masters: pieces of short floats are float32 copies."""
        self.owner, self.process_set, self.names = owner, process_set, names
        self.is_whole, self.masters = is_whole, masters
        self.exchange = Exchange(process_set, f"zero/{next(iter(names.values()), owner)}")
        self.forget()

    def forget(self):
        """The optimizer has the state of whole parameters, or none."""
        self.layout = None
        self.everything = []  # the parameters of the groups
        self.params, self.kinds = [], []  # of the layout, in the order of the groups
        self.pieces = {}  # parameter: its pieces on this rank
        self.state = collections.defaultdict(dict)  # by piece, and by what else the optimizer keeps state
        self.spare = {}  # the state of whole parameters: of those that are in no layout
        self._chunks = None

    def name_of(self, param):
        return self.names.get(param, "without a name")

    def begin(self, groups, state):
        """Before a step, and before whole(). state: of whole parameters; that of a parameter goes to its pieces once it
        has some. Collective where parameters are new."""
        if self.layout is not None and my_id() not in self.layout.members:
            self.forget()  # this rank was evicted, and has joined again
        self.everything = [param for group in groups for param in group["params"]]
        self.spare = state
        params, kinds = self.tracked()
        for param in params:
            if self.masters or not self.is_whole:  # on all ranks alike
                check_gradient(param, self.name_of(param))
        if kinds != self.kinds or any(one is not other for one, other in zip(params, self.params)):
            for param in params:
                check_dense(param, self.name_of(param))
            if self.layout is not None:
                self.change(params, kinds)
            self.params, self.kinds = params, kinds

    def tracked(self):
        """The parameters that have a gradient, or had one, and what a Layout needs of them."""
        known = set(self.params)
        params = [one for one in self.everything if one.requires_grad or one.grad is not None or one in known]
        return params, [(one.numel(), kind_of(one)) for one in params]

    def change(self, params, kinds):
        """The layout becomes one of other parameters. Collective."""
        self.adopt(self._layout_of(self.layout.members, self.layout.hosts, kinds), params, self._collected())

    def _layout_of(self, members, hosts, kinds):
        return Layout(members, hosts, kinds, self.is_whole)

    def adopt(self, layout, params, moved, confirm=None):
        """Makes the pieces of a layout, and only then forgets those before. moved: yields (parameter, its state).
        confirm(): called in between."""
        place = layout.members.index(my_id())
        pieces, state = {}, collections.defaultdict(dict)
        for one in layout.held(place) if self.has_buddies else [place]:
            for part in layout.parts(one):
                param = params[part.number]
                pieces.setdefault(param, []).append(Piece(param, part, one, self.masters))
        known = set(params)
        whole = {key: entry for key, entry in self.spare.items() if key in known or not isinstance(key, torch.Tensor)}
        for param, entry in itertools.chain(whole.items(), moved):
            for piece in pieces.get(param, ()):
                if taken := piece.take(entry):
                    state[piece.tensor] = taken
        state.update(self.loose_state())
        if confirm is not None:
            confirm()
        for key in whole:
            del self.spare[key]
        self.layout, self.params, self.kinds = layout, params, list(layout.params)
        self.pieces, self.state, self._chunks = pieces, state, None

    def update(self, step):
        """step() of the user's class, of the pieces. What belongs to no parameter is theirs from then on."""
        self.state.update(loose := self.loose_state())
        for key in loose:
            self.spare.pop(key, None)
        pieces = [piece for of_param in self.pieces.values() for piece in of_param]
        for piece in pieces:
            piece.begin()
        step()
        for piece in pieces:
            piece.end()

    def run(self, step):
        """Updates the pieces of this rank, and gives the parameters the values of the other members. Collective;
        blocks."""
        if self.layout is None:
            members = tuple(horo.members()[rank] for rank in self.process_set.ranks)
            self.adopt(self._layout_of(members, [0] * len(members), self.kinds), self.params, ())
        self.update(step)
        if len(self.layout.members) == 1:
            return
        if self._chunks is None:
            first = {kind: param for param, (_, kind) in zip(reversed(self.params), reversed(self.kinds))}
            self._chunks = [Chunks(self.layout, kind, first[kind], self.process_set) for kind in self.layout.kinds]
        for number, chunks in enumerate(self._chunks):
            chunks.run(self.params, f"{self.exchange.label}/{number}")

    def whole(self, wanted, take=dict):
        """{parameter: take(its whole state)}, of those for which wanted(parameter) is true. Collective; blocks."""
        return {param: take(entry) for param, entry in self._collected() if wanted(param)}

    def _collected(self, expected=None, gives=None):
        """Yields (parameter, its whole state). gives(piece): whether this rank gives it; None: each member its own.
        expected: see Exchange."""
        place = self.layout and self.layout.members.index(my_id())
        gives = gives or (lambda piece: piece.place == place)
        pieces = [piece for of_param in self.pieces.values() for piece in of_param if gives(piece)]
        gathers = (
            lambda value: self.exchange.objects(value, expected)[1],
            lambda tensors, name: self.exchange.tensors(tensors, name, expected=expected)[2],
        )
        return collect(self.params, pieces, self.state, gathers, self.owner)

    def loose_state(self):
        """The state that belongs to no parameter."""
        tensors = {id(piece.tensor) for of_param in self.pieces.values() for piece in of_param}
        kept = {key: value for key, value in self.state.items() if id(key) not in tensors}
        return {**kept, **{key: value for key, value in self.spare.items() if not isinstance(key, torch.Tensor)}}
