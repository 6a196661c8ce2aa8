"""Division: what a divided optimizer has on this rank: the layout, the pieces, and their state."""

import collections
import itertools
import operator

import torch

import horo
from horo.torch.sharding import FixedPartGather, Layout, MemberGather, check_dense, gather_entries, kind_of, my_member
from horo.zero.pieces import MASTER, SHORT, Piece, check_gradient


class Division:
    """Of a job whose members stay."""

    has_copies = False

    def __init__(self, owner, process_set, names, is_whole, masters):
        """owner: the name of the optimizer's class. names: {parameter: its name}. is_whole: parameters are not
        divided. masters: pieces of short floats are float32 copies."""
        self.owner, self.process_set, self.names = owner, process_set, names
        self.is_whole, self.masters = is_whole, masters
        self.gather = MemberGather(process_set, f"zero/{next(iter(names.values()), owner)}")
        self.forget()

    def forget(self):
        """The optimizer has the state of whole parameters, or none."""
        self.layout = None
        self.everything = []  # the parameters of the groups
        self.params = []  # of the layout, in the order of the groups
        self.pieces = {}  # parameter: its pieces on this rank
        self.state = collections.defaultdict(dict)  # by piece, and by what else the optimizer keeps state
        self.spare = {}  # the state of whole parameters: of those that are in no layout
        self._part_gather = None

    def has_master(self, param):
        """Whether its pieces are float32 copies."""
        return self.masters and param.dtype in SHORT

    def begin(self, groups, state):
        """Before a step, and before whole(). state: of whole parameters; that of a parameter goes to its pieces once it
        has some. Collective where parameters are new."""
        if self.layout is not None and my_member() not in self.layout.members:
            self.forget()  # this rank was evicted, and has joined again
        self.everything = [param for group in groups for param in group["params"]]
        self.spare = state
        params = self.tracked()
        for param in params:
            if self.masters or not self.is_whole:  # on all ranks alike
                check_gradient(param, self.names.get(param, "without a name"))
        if self.layout is not None and self.layout.tensors == _forms(params):
            if all(map(operator.is_, params, self.params)):
                return
        for param in params:
            check_dense(param, f"horo.zero: parameter {self.names.get(param, 'without a name')}")
        if self.layout is not None:
            self.change(params)
        self.params = params

    def tracked(self):
        """The parameters that have a gradient, or had one."""
        known = set(self.params)
        return [one for one in self.everything if one.requires_grad or one.grad is not None or one in known]

    def change(self, params):
        """The layout becomes one of other parameters. Collective."""
        self.adopt(self.layout_of(self.layout.members, self.layout.hosts, params), params, self.collected())

    def layout_of(self, members, hosts, params):
        """Of these parameters."""
        return Layout(members, hosts, _forms(params), self.is_whole, self.has_copies)

    def adopt(self, layout, params, moved=(), confirm=lambda: None):
        """Makes the pieces of a layout, and only then forgets those before. moved: yields (parameter, its state).
        confirm(): called in between."""
        pieces, state = {}, collections.defaultdict(dict)
        for place in layout.held(layout.members.index(my_member())):
            for part in layout.parts(place):
                param = params[part.number]
                pieces.setdefault(param, []).append(Piece(param, part, place, self.has_master(param)))
        known = set(params)
        whole = {key: entry for key, entry in self.spare.items() if key in known or not isinstance(key, torch.Tensor)}
        for param, entry in itertools.chain(whole.items(), moved):
            for piece in pieces.get(param, ()):
                if taken := piece.take(entry):
                    state[piece.tensor] = taken
        state.update(self.loose_state())
        confirm()
        for key in whole:
            del self.spare[key]
        self.layout, self.params, self.pieces, self.state = layout, params, pieces, state
        self._part_gather = None

    def divide(self):
        """Each member keeps its pieces of the state of whole parameters, if it has not done so."""
        if self.layout is None:
            members = [horo.members()[rank] for rank in self.process_set.ranks]
            self.adopt(self.layout_of(members, [0] * len(members), self.params), self.params)

    def update(self, step):
        """step() of the user's class, of the pieces. What belongs to no parameter is theirs from then on."""
        self.state.update(loose := self.loose_state())
        for key in loose:
            self.spare.pop(key, None)
        pieces = list(self._pieces())
        for piece in pieces:
            piece.begin()
        step()
        for piece in pieces:
            piece.end()

    def run(self, step):
        """Updates the pieces of this rank, and gives the parameters the values of the other members. Collective;
        blocks."""
        self.divide()
        self.update(step)
        if len(self.layout.members) > 1:
            self._part_gather = self._part_gather or FixedPartGather(self.layout, self.process_set, self.gather.label)
            self._part_gather.run(self.params)

    def whole(self, wanted, take=lambda entry, members: entry):
        """{parameter: take(its whole state, the members that divide it)}, of those for which wanted(parameter) is true.
        Collective; blocks."""
        return {param: take(entry, self.layout.members) for param, entry in self.collected() if wanted(param)}

    def collected(self, givers=None, members=None):
        """Yields (parameter, its whole state). givers: {place: the member that gives its pieces}, of the members that
        are expected; None: each member its own. Collective; raises MembersChanged."""
        if self.layout is not None and givers is None:
            members, givers = self.layout.members, dict(enumerate(self.layout.members))
        mine = [(piece.part, piece.entry(self.state)) for piece in self._pieces() if givers[piece.place] == my_member()]
        for param, entry in gather_entries(self.gather, self.params, mine, f"horo.zero: {self.owner}", members):
            if entry.keys() != {MASTER} or not torch.equal(entry[MASTER], param.detach().float()):
                yield param, entry  # others have nothing but a copy that no step has changed

    def loose_state(self):
        """The state that belongs to no parameter."""
        tensors = {id(piece.tensor) for piece in self._pieces()}
        kept = {key: value for key, value in self.state.items() if id(key) not in tensors}
        return {**kept, **{key: value for key, value in self.spare.items() if not isinstance(key, torch.Tensor)}}

    def _pieces(self):
        return itertools.chain.from_iterable(self.pieces.values())


def _forms(params):
    """What a Layout needs of them."""
    return tuple((one.numel(), kind_of(one)) for one in params)
