"""State: all that a rank which joins needs to train on with equal bits, and the loop in which ranks may join."""

import functools
import os

from horo._arguments import flag, whole
from horo._changes import Growing, Ranks
from horo.elastic import generators
from horo.elastic.batches import Batches
from horo.elastic.buffers import STATE, Sharded
from horo.elastic.deal import Place
from horo.elastic.fields import Options, adapter_of, check_assigned
from horo.elastic.giving import Giving
from horo.elastic.sampler import Sampler
from horo.errors import Drained

NOTHING = Place(0, ())  # of a pass is used
_OUTSIDE = "State.{}: expected in a function of horo.elastic.run, which gets the state as its first argument"


class State:
    """Fields by name: State(model=model, optimizer=optimizer, sampler=sampler, best=0.0). Each is an attribute.

    Fields are modules, optimizers, schedulers, GradScaler, averages of models, tensors, NumPy arrays, a Sampler,
    numbers, strings, lists, dicts, and objects with horo_state(). All ranks begin a function of elastic.run with those
    of rank 0. A rank that joins gets them from the others at a border: between two batches of batches(), or between two
    passes of passes(). One thread uses a State."""

    def __new__(cls, *args, **fields):
        """With bcast_object it is Horovod's State, which has the same name in horo.torch.elastic."""
        if cls is State and "bcast_object" in fields:
            from horo.torch.elastic.base import State as HorovodsState

            return HorovodsState(*args, **fields)
        return super().__new__(cls)

    def __init__(self, *args, buffers=None, trust=False, seed=None, **fields):
        """buffers: "mean" averages the statistics of BatchNorm over the ranks at the end of each pass, where ranks join
        and where the State is saved; None: each rank keeps its own, and a rank that joins, or a checkpoint, gets those
        of rank 0. trust: values of unknown types are pickled, which lets a rank run code on those that join. seed: of
        the random generators, which are seeded at each batch; None: that of the Sampler; False: they are left alone.

        Raises TypeError for a value of a type that cannot be given to another rank, with its name."""
        if args:
            raise TypeError(f"State({type(args[0]).__name__}, ...): expected names: State(model=model, best=0.0)")
        taken = sorted(name for name in fields if name.startswith("_") or hasattr(type(self), name))
        if taken:
            raise ValueError(f"State({taken[0]}=...): State has this name itself; expected another one")
        if buffers not in (None, "mean"):
            raise ValueError(f"State(buffers={buffers!r}); expected None or 'mean'")
        private = {"names": tuple(sorted(fields)), "trust": flag(trust, "State: trust"), "mean": buffers == "mean"}
        private |= {"seed": seed if seed in (None, False) else whole(seed, "State: seed"), "callbacks": []}
        private |= {"pass": 0, "step": 0, "border": None, "in_passes": None, "keeper": None}
        private["adapters"] = {name: adapter_of(value) for name, value in fields.items()}
        vars(self).update({f"_{name}": value for name, value in private.items()} | fields)
        self.terms()  # refuses fields by name

    def __setattr__(self, name, value):
        if not name.startswith("_") and name not in self._names:
            raise AttributeError(
                f"the State has no field {name!r}, and a rank that joins would not have it: State({name}=...)"
            )
        if not name.startswith("_"):
            check_assigned(name, self._adapters[name], getattr(self, name), value, self._trust)
        super().__setattr__(name, value)

    # What scripts call

    @property
    def step(self):
        """The number of batches that the script has got, with the present one. Equal on all ranks in each of them, also
        on those that have joined."""
        return self._step

    def passes(self, count):
        """Yields the numbers of the passes that are left, up to count - 1. Ranks may join between two of them."""
        border = self._expect_border("passes()")
        for number in range(vars(self)["_pass"], whole(count, "State.passes", "a number of at least 0", 0)):
            self._start_pass(number)
            loop = self._in_passes = object()
            try:
                yield number
            finally:
                if self._in_passes is loop:  # else this rank was evicted, and another loop has begun
                    self._in_passes = None
            self._finish_batch()
            self._start_pass(number + 1)
            may_join = border.is_elastic and number + 1 < count and self._settle(is_end=True)
            self._keep_if_due()
            self._grow_if(may_join)

    def batches(self, loader):
        """The batches of a loader with a Sampler of this State, as the loader yields them: those that are left of the
        present pass. Has a length, so that tqdm may be around it. Ranks may join between two batches."""
        self._expect_border("batches()")
        self._finish_batch()  # of a loop that a break has ended
        return Batches(self, loader)

    def on_change(self, function):
        """Calls function(changed) at the border at which the members have changed, on all ranks, also on those that
        have joined, with a Changed. Returns a function that undoes this. What it raises ends the script.
        Raises RuntimeError in a function of horo.elastic.run."""
        if not callable(function):
            raise TypeError(f"State.on_change({function!r}); expected a function of one argument, the Changed")
        if self._border is not None:
            raise RuntimeError(
                "State.on_change(): called in a function of horo.elastic.run, which begins at other times on ranks "
                "that join: call it before"
            )
        self._callbacks.append(function)
        return functools.partial(self._callbacks.remove, function)

    def keep(self, folder, every_s=None, every_rounds=None, keep=3, resume=True, strict=False):
        """Saves the State in the folder, in the background, at borders: every so many seconds, or steps; by default
        every 300 s. The end of the function of elastic.run is saved, too. The newest `keep` checkpoints stay.

        elastic.run goes on where the newest whole checkpoint stood, for any number of ranks, unless resume is False.
        Runs of `horo scale run` are neither saved nor resumed.
        All ranks call keep() with the same arguments, before elastic.run, and see the same folder. A save that fails is
        told in one line, last_error has it, and training goes on; strict: the next save raises it on all ranks.
        Raises ValueError for an argument out of range, RuntimeError in a function of horo.elastic.run."""
        from horo.checkpoint.keeper import keeper_of

        if self._border is not None:
            raise RuntimeError("State.keep(): called in a function of horo.elastic.run: call it before")
        keeper = keeper_of(folder, every_s, every_rounds, (keep, resume, strict))
        self._keeper = None if os.environ.get("HORO_SCALE") == "1" else keeper

    @property
    def last_error(self):
        """Why the last save of keep() that has failed on this rank did, or None."""
        return None if self._keeper is None else self._keeper.last_error

    def terms(self):
        """Lines name=value: types, shapes and dtypes of the fields. A rank that joins has the same lines, or is refused
        before the others wait for it."""
        fields = self._fields()
        rows = [row for field in fields for row in field.terms()]
        rows += [("buffers", "mean" if self._mean else "of rank 0"), ("trust", str(self._trust))]
        if self._keeper is not None:
            rows.append(("keep", str(self._keeper.settings())))
        return [f"state.{name}={text}" for name, text in rows]

    def check_can_be_given(self):
        """Raises ValueError if a rank that joins could not get a field."""
        for name, _, kind in (row for field in self._fields() for row in field.horo_state()):
            if isinstance(kind, Sharded):
                raise ValueError(
                    f"horo.elastic.State: {name} is sharded: in an elastic job a rank that joins cannot get it yet"
                )

    def most_ranks(self):
        """For each Sampler to have a step; None: there is none."""
        return min((sampler.deal.most_members() for _, sampler in self._samplers()), default=None)

    # What the loop and Batches call

    def _expect_border(self, what):
        if self._border is None:
            raise RuntimeError(_OUTSIDE.format(what))
        return self._border

    def _fields(self, what=STATE):
        """what: what the script calls, for messages."""
        options = Options(self._trust, what)
        return [self._adapters[name](name, getattr(self, name), options) for name in self._names]

    def _gradients(self):
        """The Gradients of the fields that are DistributedOptimizers of the world."""
        found = (getattr(getattr(self, name), "_horo_gradients", None) for name in self._names)
        return [one for one in found if one is not None and one.declared.number == 0 and one.is_active()]

    def _samplers(self):
        """[(name, Sampler)]"""
        pairs = ((name, getattr(self, name)) for name in self._names)
        return [(name, value) for name, value in pairs if isinstance(value, Sampler)]

    def _begin(self, border):
        """The function of run begins on this rank, which has the state."""
        self._border = border
        for _, sampler in self._samplers():
            sampler.begin(border.members, border.me)

    def _start_pass(self, number):
        vars(self)["_pass"] = number
        for _, sampler in self._samplers():
            if sampler.number != number:
                sampler.start(number)

    def _end(self):
        """The function of run has ended on this rank."""
        if self._keeper is not None:
            self._keeper.abandon(self._border)
        self._border.session.leaves_at_border = False
        self._border.session.end_early()
        self._border = None

    def _begin_batch(self, part):
        """A batch, that of this Part, is given to the script."""
        session = self._border.session
        session.end_early()
        session.leaves_at_border = self._keeper is not None
        self._border.count_batch(part.counts)
        self._step += 1
        if self._seed is not False:
            samplers = self._samplers() if self._seed is None else ()
            seed = samplers[0][1].seed if samplers else self._seed or 0
            generators.seed_all(seed, self._border.me, self._step)

    def _end_batch(self, sampler):
        """The script asks for the next batch."""
        may_join = self._settle()
        if sampler.steps_left():  # else the pass is over: its end is a border, too
            self._keep_if_due()
            self._grow_if(may_join)

    def _finish_batch(self):
        """A loop over batches has ended: what was received is settled, also if no round has ended since."""
        if any(sampler.deal.is_open() for _, sampler in self._samplers()):
            self._settle(is_end=True)

    def _end_batches(self):
        """The batches of a pass are used up."""
        if self._mean:
            self._average()

    def _prepare_save(self):
        """Collective over the world; blocks."""
        if self._mean:
            self._average()

    def _average(self):
        from horo.torch.elastic.statistics import average

        average([getattr(self, name) for name in self._names])

    def _settle(self, is_end=False):
        """Returns whether ranks may join here."""
        border = self._border
        contributors, may_join = border.settle(is_end)
        if contributors is None:
            return False
        gone = tuple(member for member in border.members if member not in contributors)
        for _, sampler in self._samplers():
            sampler.deal.settle(contributors)
        if gone:
            self._tell(border.lose(gone, self._step))
        return may_join

    def _grow_if(self, may_join):
        if not may_join:
            return
        border = self._border
        if self._mean:
            self._average()
        changed = border.grow(Giving(self, border, True).give, self._step)
        for _, sampler in self._samplers():
            sampler.begin(border.members, border.me)
        if changed.lost or changed.joined:
            self._tell(changed)

    def _join(self, border, before):
        """This rank has joined: gets the state, and comes to the border at which the others are. before: its Topology
        until now."""
        giving = Giving(self, border, False)
        with Growing(border.session.world, joins=True) as growing:
            rows = border.until_all_have_the_state(giving.give, lambda: giving.has_state, 0)
            changed = border.change_to(rows, self._step)
            growing.before = Ranks(before.rank, before.epoch, border.seen)
        self._begin(border)
        self._tell(changed)
        if any(sampler.deal.place != NOTHING for _, sampler in self._samplers()):
            border.session.begin_early()

    def _give_up(self):
        """This rank was evicted in the middle of a batch: what it has begun is void."""
        self._in_passes = None
        if self._keeper is not None:
            self._keeper.unlock()
        for field in self._fields():
            field.give_up()

    def _keep_if_due(self):
        """Between two batches, or two passes."""
        border = self._border
        if self._keeper is None or not border.is_clean:
            return
        if not border.take_notice():
            return self._keeper.at_border(self, border)
        notice = border.session.notice()
        self._keeper.leave(self, border, notice)
        if notice is not None:
            raise Drained

    def _resume(self, border):
        """Whether the fields are those of a checkpoint now."""
        return self._keeper is not None and self._keeper.start(self, border)

    def _finish(self):
        """The function of run has returned on all ranks."""
        if self._keeper is not None:
            self._finish_batch()
            self._keeper.finish(self, self._border)

    def _tell(self, changed):
        if changed.lost and self._keeper is not None:
            self._keeper.lose(changed.lost)
        for function in list(self._callbacks):
            function(changed)

    def _rest(self, fields):
        """JSON: all that is no tensor."""
        border = self._border
        small = self._place() | {"members": list(border.members), "seen": list(border.seen)}
        if self._keeper is not None:
            small["keeper"] = self._keeper.to_give()
        return small | {"fields": {field.name: field.rest() for field in fields}}

    def _place(self):
        return {"pass": vars(self)["_pass"], "step": self._step}

    def _take(self, fields, rest):
        """This rank has the bytes of all tensors of these fields."""
        self._step = rest["step"]
        if self._keeper is not None and "keeper" in rest:
            self._keeper.take(rest["keeper"])
        for field in fields:
            field.finish()
            if field.is_replaced:
                setattr(self, field.name, field.value)
        passes = (sampler.number for _, sampler in self._samplers())  # of a checkpoint that was made of another file
        vars(self)["_pass"] = rest["pass"] if "pass" in rest else max(passes, default=0)
