"""TorchState: a model, an optimizer, samplers and other values. A handler saves each value of a known type."""

import copy
import functools

import torch

from horo import _default
from horo.elastic.fields import Options
from horo.torch.elastic.adapters import EXTRA_STATE, GradScaler, OfModule, options_of
from horo.torch.elastic.base import ObjectState, attempt
from horo.torch.elastic.sampler import ElasticSampler
from horo.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
    broadcast_state,
)
from horo.torch.objects import pack
from horo.torch.optimizer_state import load_exactly

_broadcast = functools.partial(broadcast_object, name="elastic.State.object")


class StateHandler:
    """Saves one value of a TorchState."""

    def __init__(self, value):
        self.value = value
        self.save()

    def set_value(self, value):
        """The attribute has got another value."""
        self.value = value
        self.save()

    def save(self):
        raise NotImplementedError

    def restore(self):
        raise NotImplementedError

    def sync(self):
        """Gives all ranks the value of rank 0."""
        raise NotImplementedError

    def reset(self):
        """The ranks have changed."""


class StateDictHandler(StateHandler):
    """Of an object with state_dict() and load_state_dict(), such as a scheduler."""

    def save(self):
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self):
        self.value.load_state_dict(copy.deepcopy(self._saved))  # an optimizer keeps the tensors that it gets

    def sync(self):
        self.value.load_state_dict(_broadcast(self.value.state_dict()))


class ModelStateHandler(StateDictHandler):
    def sync(self):
        state = self.value.state_dict()
        extra = {name: one for name, one in state.items() if name.endswith(EXTRA_STATE)}
        for name, one in extra.items():  # on all ranks, so that all of them raise the error
            attempt("pickled", pack, name, one)
        broadcast_parameters({name: one for name, one in state.items() if name not in extra}, root_rank=0)
        if extra:  # what get_extra_state() of modules returns, of any type
            state.update(broadcast_state(extra, "elastic.State.extra"))
            self.value.load_state_dict(state)


class OptimizerStateHandler(StateDictHandler):
    def save(self):
        """All ranks save at the same calls, so those that divide the state gather it."""
        state_dict = getattr(self.value, "horo_state_dict", self.value.state_dict)
        self._saved = copy.deepcopy(state_dict())

    def restore(self):
        load_exactly(self.value, copy.deepcopy(self._saved))  # the optimizer keeps the tensors that it gets
        self.value.zero_grad()  # the gradients, and the passes that were added up, belong to the step that was given up

    def sync(self):
        broadcast_optimizer_state(self.value, root_rank=0)


class SamplerStateHandler(StateHandler):
    """A rank saves its part, and what it has processed; sync() unites what all have processed, and deals the rest."""

    def __init__(self, value):
        super().__init__(value)
        value.is_in_state = True

    def set_value(self, value):
        super().set_value(value)
        value.is_in_state = True

    def save(self):
        self._saved = self.value.part()

    def restore(self):
        self.value.take_part(self._saved)

    def sync(self):
        """What any rank has processed in rank 0's epoch is processed. The rows of the gather say which ranks share the
        rest, so that all ranks deal it alike, whatever else they have seen meanwhile."""
        world = _default.session().world
        me = world.members[world.topology.rank]
        rows = allgather_object((me, self.value.own_state()), name="elastic.State.sampler")
        epoch = rows[0][1]["epoch"]
        parts = [one["processed_indices"] for _, one in rows if one["epoch"] == epoch]
        self.value.epoch, self.value.processed_indices = epoch, set().union(*parts)
        self.value.deal_to([member for member, _ in rows].index(me), len(rows))

    def reset(self):
        self.sync()


_registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (torch.optim.lr_scheduler.LRScheduler, StateDictHandler),
    (GradScaler, StateDictHandler),
]


def get_handler_registry():
    """[(type, subclass of StateHandler)]: the first type that a value is an instance of counts."""
    return _registry


def set_handler_registry(registry):
    """Replaces the handlers, for the TorchStates that are made from now on."""
    global _registry
    _registry = registry


class TorchState(ObjectState):
    """A state of a model, an optimizer and any further values; each keyword argument is an attribute. Values without a
    handler are copied and pickled. Each save copies the state of all of them in memory."""

    def __init__(self, model=None, optimizer=None, **kwargs):
        kwargs.update(model=model, optimizer=optimizer)
        self._handlers = {}
        for name, value in sorted(kwargs.items()):  # in one order on all ranks
            found = next((handler for kind, handler in _registry if isinstance(value, kind)), None)
            if found is not None:
                self._handlers[name] = found(value)
                super().__setattr__(name, kwargs.pop(name))
        super().__init__(bcast_object=_broadcast, get_rank=_default.rank, **kwargs)

    def save(self):
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self):
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self):
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self):
        for handler in self._handlers.values():
            handler.reset()
        super().reset()

    def _terms(self):
        options = Options()
        values = {name: handler.value for name, handler in self._handlers.items()}
        models = [OfModule(name, one, options) for name, one in values.items() if isinstance(one, torch.nn.Module)]
        rows = [row for model in models for row in model.forms()]
        rows += [(name, _class_of(value)) for name, value in values.items()]
        optimizers = [(name, one) for name, one in values.items() if isinstance(one, torch.optim.Optimizer)]
        rows += [(f"{name}.distributed.{key}", text) for name, one in optimizers for key, text in options_of(one)]
        return [*super()._terms(), *(f"state.{name}={text}" for name, text in rows)]

    def __setattr__(self, name, value):
        if name in self.__dict__.get("_handlers", ()):
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)


def _class_of(value):
    """The user's class of a value, under that of a DistributedOptimizer."""
    return next(kind.__name__ for kind in type(value).__mro__ if not kind.__module__.startswith("horo.torch.optimizer"))
