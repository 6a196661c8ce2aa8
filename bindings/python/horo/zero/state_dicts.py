"""The state_dict() of a divided optimizer, how it is gathered and loaded. Methods horo_... are what horo's State,
checkpoints and broadcasts call."""

import horo
import horo.torch as hvd
from horo.zero.pieces import MASTER

_WHOLE_STATE = (
    "the state of this {} is divided among the ranks: call optimizer.gather_state(root_rank) on all ranks after the "
    "last step(), and then state_dict() on the root"
)


class StateDicts:
    """A base of Divided."""

    def gather_state(self, root_rank=0):
        """Then state_dict() on root_rank is that of the user's class, until the next step(). None: on all ranks. All
        ranks of the process set call it; blocks. Raises ValueError for a rank outside of it."""
        ranks = self._zero.process_set.ranks
        if root_rank is not None and root_rank not in ranks:
            raise ValueError(
                f"horo.zero: gather_state({root_rank!r}); expected one of the ranks {ranks}, or None for all of them"
            )
        self._zero_whole = self._zero_gather(root_rank is None or root_rank == horo.rank())
        self._zero_all_have_it = root_rank is None

    def _zero_gather(self, is_mine, *take):
        """The state of all parameters, or None: this rank does not want it, or has it. take: see Division.whole()."""
        division = self._zero
        if not division.process_set.included():
            return None
        division.begin(self.param_groups, self.state)
        whole = division.whole(lambda _: is_mine, *take)
        is_divided = division.layout is not None
        return {**division.loose_state(), **self.state, **whole} if is_mine and is_divided else None

    def state_of(self, param):
        """The state of one parameter, whole: a dict. All ranks of the process set call it; blocks."""
        whole = {}
        if self._zero.process_set.included():
            self._zero.begin(self.param_groups, self.state)
            whole = self._zero.whole(lambda one: one is param)
        return whole.get(param, self.state.get(param, {}))

    def state_dict(self):
        layout = self._zero.layout
        if layout is not None and self._zero_whole is None:
            if len(layout.members) > 1:
                raise RuntimeError(_WHOLE_STATE.format(type(self).__name__))
            self.gather_state(None)
        return self._zero_dict(self._zero_whole)

    def horo_state_dict(self):
        """state_dict() on all ranks of the process set, which all call it; blocks, if they have to gather the state."""
        is_here = self._zero.layout is None or (self._zero_whole is not None and self._zero_all_have_it)
        return self.state_dict() if is_here else self.horo_gather()

    def _zero_dict(self, whole):
        """state_dict() of this state; None: of that which the optimizer has."""
        before = self.state
        try:
            self.state = before if whole is None else whole
            return super().state_dict()
        finally:
            self.state = before

    def load_state_dict(self, state_dict):
        self.horo_load(state_dict, is_exact=False)

    def horo_load(self, state_dict, is_exact=True):
        """load_state_dict(). is_exact: values keep their types, dtypes and devices. Those of master copies are never
        rounded."""
        division, state, masters = self._zero, {}, {}
        numbers = (number for group in state_dict["param_groups"] for number in group["params"])
        params = dict(zip(numbers, self._zero_params()))
        for number, entry in state_dict["state"].items():
            if isinstance(entry, dict) and MASTER in entry:
                if number in params and division.has_master(params[number]):
                    masters[number] = {MASTER: entry[MASTER]}
                entry = {key: value for key, value in entry.items() if key != MASTER}
                if not entry:  # the user's class does not take it
                    continue
            state[number] = entry
        with hvd.state_as_saved(self, lambda param: is_exact or division.has_master(param), masters, is_exact):
            super().load_state_dict({**state_dict, "state": state})
        self._zero_whole = None
        division.forget()

    def _zero_params(self):
        return [param for group in self.param_groups for param in group["params"]]

    def horo_divide(self, process_set):
        """All ranks of process_set have loaded the same state: each keeps its part alone."""
        ranks = self._zero.process_set.ranks
        if self.state and self._zero.process_set.included() and set(ranks) <= set(process_set.ranks):
            self._zero.begin(self.param_groups, self.state)
            self._zero.divide()

    def horo_gather(self, *take):
        """state_dict() on all ranks of the process set, which all call it; blocks. Keeps nothing of it. take(state,
        members): what this rank keeps of the state of a parameter that these members divide; default: all."""
        return self._zero_dict(self._zero_gather(True, *take))

    def horo_rest(self):
        """What the ranks have alike, in the form of a state_dict(): the options of the groups, and the state that is
        not divided. None: this rank has all of the state."""
        if self._zero.layout is None:
            return None
        numbers = {param: number for number, param in enumerate(self._zero_params())}
        state = {**self._zero.loose_state(), **self.state}
        places = iter(range(len(numbers)))
        groups = [{**group, "params": [next(places) for _ in group["params"]]} for group in self.param_groups]
        return {"state": {numbers.get(key, key): entry for key, entry in state.items()}, "param_groups": groups}

    def horo_take(self, rest):
        """Sets what horo_rest() returned on another rank."""
        for group, options in zip(self.param_groups, rest["param_groups"]):
            group.update({key: value for key, value in options.items() if key != "params"})
        params = dict(enumerate(self._zero_params()))
        self.state.clear()
        self.state.update({params.get(key, key): entry for key, entry in rest["state"].items()})

    def horo_terms(self):
        """[(name, text)]: how it is divided."""
        division = self._zero
        partition, copies = "tensors" if division.is_whole else "blocks", int(division.has_copies)
        return [("partition", partition), ("masters", str(division.masters)), ("redundancy", str(copies))]
