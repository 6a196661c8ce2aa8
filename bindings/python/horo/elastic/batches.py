"""State.batches(loader): the batches of a pass that count, and a border after each of them."""

from horo.elastic.sampler import Sampler

_END = object()


def sampler_of(loader, samplers):
    """The Sampler of a loader. samplers: those of the State. Raises TypeError with what is expected."""
    found = getattr(loader, "batch_sampler", None)
    known = ", ".join(name for name, _ in samplers) or "none"
    if not isinstance(found, Sampler):
        is_loader = hasattr(loader, "dataset")
        raise TypeError(
            f"State.batches(): a {type(loader).__name__} "
            + (f"whose batch_sampler is a {type(found).__name__}" if is_loader else "is no DataLoader")
            + "; expected DataLoader(data, batch_sampler=horo.elastic.Sampler(len(data), batch_size=...)), with a "
            f"Sampler of the State (it has: {known}). A progress bar goes around state.batches(loader)"
        )
    if not any(found is one for _, one in samplers):
        raise ValueError(f"State.batches(): the loader's Sampler is no field of the State (it has: {known})")
    if getattr(loader, "in_order", True) is False:
        raise ValueError("State.batches(): the loader has in_order=False; expected the batches in order")
    return found


class Batches:
    """An iterable with a length: the number of steps that are left of the pass with the present ranks. Each iteration
    goes on where the pass is."""

    def __init__(self, state, loader):
        self._state, self._loader = state, loader
        self._sampler = sampler_of(loader, state._samplers())

    def __len__(self):
        return self._sampler.steps_left()

    def __iter__(self):
        """Yields what the loader yields. The loader's iterator ends with the batches that were drawn; where members
        were lost late, their parts are left, and another iterator of the loader gets them."""
        state, sampler = self._state, self._sampler
        state._finish_batch()
        if sampler.is_over and state._in_passes is None:  # not at a rank that has just joined, in a later loop
            raise RuntimeError("State.batches(): the pass is over; expected a loop over State.passes(n) around it")
        iterator, is_new, was_over = None, False, not sampler.steps_left()
        while sampler.steps_left():
            if iterator is None:
                iterator, is_new = iter(self._loader), True
            batch = next(iterator, _END)
            if batch is _END:
                if is_new:
                    raise RuntimeError("State.batches(): the loader has ended without a batch, with some left to deal")
                iterator = None
                state._finish_batch()
                continue
            is_new = False
            if (part := sampler.receive()) is None:
                continue  # of an older deal
            state._begin_batch(part)
            yield batch
            state._end_batch(sampler)
        sampler.is_over = True
        if not was_over:  # else a rank that has joined in a later loop is here, and no other one
            state._end_batches()
