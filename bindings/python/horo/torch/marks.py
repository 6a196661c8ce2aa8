"""Marks of a script of torch, without changes to it: input, backward, optimizer, checkpoints, garbage collections.

They are installed by the first optimizer or process group. Forward needs no mark: it is what lies between an input and
a backward. Modules have no hooks, since torch.compile would see them.
"""

import functools
import gc

from horo import _default
from horo._marks import BACKWARD, CHECKPOINT, COLLECTION, INPUT, OPTIMIZER, collected, marks, module
from horo._marks import is_wanted as _is_wanted
from horo._native import STEP_IN_FORWARD, STEP_WAITS_ELSEWHERE
from horo._notice import leave_if_drained

_OF_CHECKPOINTS = ("save", "async_save")  # of torch.distributed.checkpoint


class _Installed:
    """What this process has installed."""

    base = False
    optimizers = False  # hooks of all optimizers
    checkpoints = False  # of torch.distributed.checkpoint
    collectives = 0  # that groups of torch.distributed have submitted
    session = None  # of the last one


def install(session=None):
    """Marks input, checkpoints and collections from now on, if the session wants that."""
    session = session or _default.current()
    if _Installed.base or session is None or not _is_wanted(session):
        return
    _Installed.base = True
    _mark_loaders(module("torch.utils.data.dataloader"))
    torch = module("torch")
    torch.save = _marked(torch.save, CHECKPOINT)
    gc.callbacks.append(collected)
    marks.makes(BACKWARD, CHECKPOINT, COLLECTION)


def install_for_groups(session):
    """The same for torch.distributed, where optimizers are those of the script."""
    install(session)
    if _Installed.base and not _Installed.optimizers:
        _Installed.optimizers = True
        optimizer = module("torch.optim.optimizer")
        optimizer.register_optimizer_step_pre_hook(_begin_optimizer)
        optimizer.register_optimizer_step_post_hook(_end_optimizer)
        marks.makes(OPTIMIZER)


def install_for_optimizers():
    """The same for a DistributedOptimizer, whose step() is marked."""
    install()
    if _Installed.base:
        marks.makes(OPTIMIZER)


def _begin_optimizer(optimizer, args, kwargs):
    marks.begin(OPTIMIZER)


def _end_optimizer(optimizer, args, kwargs):
    marks.end(OPTIMIZER)
    leave_if_drained()


def _marked(function, kind):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        marks.begin(kind)
        try:
            return function(*args, **kwargs)
        finally:
            marks.end(kind)

    wrapped._torchdynamo_disable = True
    return wrapped


def _mark_loaders(loaders):
    """All loaders of torch iterate by these two functions, which are private to torch: without them the input is not
    known."""
    iterator = getattr(loaders, "_BaseDataLoaderIter", None)
    advance, start = getattr(iterator, "__next__", None), getattr(loaders.DataLoader, "_get_iterator", None)
    if advance is None or start is None:
        return

    has_gradients = module("torch").is_grad_enabled

    @functools.wraps(advance)
    def advanced(self):
        before = len(marks.batches)
        marks.begin(INPUT)
        try:
            batch = advance(self)
        except StopIteration:
            marks.has_no_batch(self, before)
            raise
        finally:
            marks.end(INPUT)
        if not marks.has_input:  # a script without loaders has an input that is not known
            marks.makes(INPUT)
        if has_gradients():
            marks.has_batch(self, batch, before)
        return batch

    started = _marked(start, INPUT)

    @functools.wraps(start)
    def made(self):
        before = len(marks.batches)
        iterator = started(self)
        marks.takes_back(before)
        return iterator

    made._torchdynamo_disable = True
    iterator.__next__, loaders.DataLoader._get_iterator = advanced, made


def begin_backward():
    """An outermost backward begins."""
    marks.uses_batch()
    marks.begin(BACKWARD)


def end_backward():
    marks.end(BACKWARD)


def begin_step():
    """An optimizer's step() begins."""
    marks.begin(OPTIMIZER)


def end_step():
    """An optimizer's step() ends."""
    marks.end(OPTIMIZER)


def end_of_round(session, stream, in_forward=False):
    """The last optimizer of a round has its results: the step of the accounting ends."""
    _mark_checkpoints()
    marks.end_step(session, stream, STEP_IN_FORWARD if in_forward else 0)


def submits(session):
    """A group of torch.distributed submits a collective."""
    _Installed.collectives += 1
    _Installed.session = session


def backward_of_groups(backward, args, kwargs):
    """Runs an outermost backward without a DistributedOptimizer. If it submits collectives, it ends a step:
    DistributedDataParallel waits for them outside of horo's calls."""
    before = _Installed.collectives
    begin_backward()
    try:
        result = backward(*args, **kwargs)
        session = _Installed.session
        if before != _Installed.collectives and session is not None and not session.closed:
            _mark_checkpoints()
            marks.end_step(session, 0, STEP_WAITS_ELSEWHERE)
        return result
    finally:
        end_backward()


def _mark_checkpoints():
    """torch.distributed.checkpoint takes long to import: scripts that use it have done so."""
    if _Installed.checkpoints or not _Installed.base or module("torch.distributed.checkpoint") is None:
        return
    _Installed.checkpoints = True
    checkpoints = module("torch.distributed.checkpoint")
    for name in _OF_CHECKPOINTS:
        if hasattr(checkpoints, name):
            setattr(checkpoints, name, _marked(getattr(checkpoints, name), CHECKPOINT))
