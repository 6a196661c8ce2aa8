"""The state_dict() of a divided optimizer, how it is gathered and loaded. Methods horo_... are what horo's State,
checkpoints and broadcasts call."""

import torch

import horo
from horo.zero.exchange import my_id
from horo.zero.pieces import MASTER, SHORT
from horo.zero.state import rows_of

_WHOLE_STATE = (
    "the state of this {} is divided among the ranks: call optimizer.gather_state(root_rank) on all ranks after the "
    "last step(), and then state_dict() on the root"
)


class StateDicts:
    """A base of Divided."""

    def gather_state(self, root_rank=0):
        """Then state_dict() on root_rank is that of the user's class, until the next step(). None: on all ranks. All
        ranks of the process set call it; blocks. Raises ValueError for a rank outside of it."""
        division = self._zero
        if root_rank is not None and root_rank not in division.process_set.ranks:
            raise ValueError(
                f"horo.zero: gather_state({root_rank!r}); expected one of the ranks {division.process_set.ranks}, or "
                "None for all of them"
            )
        self._gather(root_rank is None or root_rank == horo.rank())

    def _gather(self, mine, take=dict):
        """mine: whether this rank keeps the state, as take(state of a parameter)."""
        division = self._zero
        if not division.process_set.included():
            return
        division.begin(self.param_groups, self.state)
        whole = division.whole(lambda _: mine, take)
        if division.layout is not None:
            self._zero_whole = {**division.loose_state(), **self.state, **whole} if mine else None

    def state_of(self, param):
        """The state of one parameter, whole: a dict. All ranks of the process set call it; blocks."""
        whole = {}
        if self._zero.process_set.included():
            self._zero.begin(self.param_groups, self.state)
            whole = self._zero.whole(lambda one: one is param)
        return whole.get(param, self.state.get(param, {}))

    def state_dict(self):
        if self._zero.layout is None:
            return super().state_dict()
        if self._zero_whole is None:
            if len(self._zero.layout.members) > 1:
                raise RuntimeError(_WHOLE_STATE.format(type(self).__name__))
            self.gather_state(None)
        before, self.state = self.state, self._zero_whole
        try:
            return super().state_dict()
        finally:
            self.state = before

    def load_state_dict(self, state_dict):
        self.horo_load(state_dict, is_exact=False)

    def horo_load(self, state_dict, is_exact=True):
        """load_state_dict(). is_exact: values keep their types and dtypes, which torch makes those of the parameters.
        Those of master copies are never rounded."""
        is_entry = {number: isinstance(entry, dict) for number, entry in state_dict["state"].items()}
        masters = {n: entry[MASTER] for n, entry in state_dict["state"].items() if is_entry[n] and MASTER in entry}
        state, loaded = dict(state_dict["state"]), {}
        for number in masters:
            state[number] = {key: value for key, value in state[number].items() if key != MASTER}
            if not state[number]:  # the user's class does not take it
                del state[number]

        def restore(_):
            numbers = [number for group in loaded["param_groups"] for number in group["params"]]
            for number, param in zip(numbers, self._zero_params()):
                has_master = self._zero.masters and param.dtype in SHORT
                if number in loaded["state"] and (is_exact or has_master):
                    self.state[param] = dict(loaded["state"][number])
                if number in masters and has_master:
                    self.state[param][MASTER] = masters[number]

        hooks = [
            self.register_load_state_dict_pre_hook(lambda _, content: loaded.update(content)),  # after the script's
            self.register_load_state_dict_post_hook(restore, prepend=True),
        ]
        try:
            super().load_state_dict({**state_dict, "state": state})
        finally:
            for hook in hooks:
                hook.remove()
        self._zero_whole = None
        self._zero.forget()

    def _zero_params(self):
        return [param for group in self.param_groups for param in group["params"]]

    def horo_gather(self, take=dict):
        """state_dict() on all ranks of the process set, which all call it; blocks. Keeps nothing of it."""
        before = self._zero_whole
        try:
            self._gather(True, take)
            return self.state_dict()
        finally:
            self._zero_whole = before

    def horo_rows(self):
        """horo_gather(), where this rank has some rows of each tensor of the divided state, with an attribute
        horo_rows, (shape, first, last); and the members that have the others, or None: all is whole."""
        layout = None

        def take(entry):
            nonlocal layout
            layout = self._zero.layout
            place = layout.members.index(my_id())
            return {key: rows_of(value, place, len(layout.members)) for key, value in entry.items()}

        is_plain = super().state_dict.__func__ is torch.optim.Optimizer.state_dict
        hooks = {**self._optimizer_state_dict_pre_hooks, **self._optimizer_state_dict_post_hooks}
        content = self.horo_gather(take if is_plain and not hooks else dict)  # others may read whole tensors
        return content, layout and layout.members

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
        partition, copies = "tensors" if division.is_whole else "blocks", int(division.has_buddies)
        return [("partition", partition), ("masters", str(division.masters)), ("redundancy", str(copies))]
