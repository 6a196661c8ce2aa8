"""KeyboardInterrupt at each line of the files that submit and collect gradients: later steps give right results.

For one rank: some lines depend on timing, so that several ranks would be interrupted in different steps.
"""

import contextlib
import os
import sys

import claims
import torch
from small import backward, check, optimizer_of, params_of, start_over

import horo.torch as hvd
from horo.torch import batching, gradient_table, gradients, hooks, round_state, rounds

FILES = tuple(module.__file__ for module in (batching, gradient_table, gradients, hooks, round_state, rounds))


class Interrupt:
    """A trace function that raises KeyboardInterrupt when it reaches a line for the first time."""

    def __init__(self, place):
        self._place = place  # (file, line), or None
        self.places = set()

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename not in FILES:
            return None
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line":
            self.places.add(place)
            if place == self._place:
                self._place = None
                raise KeyboardInterrupt
        return self


def interrupted_steps(place, abandons, **options):
    """Runs steps of which one is interrupted, and steps after it. Returns the places that were reached."""
    name = f"{place and place[0][-12:]} {place and place[1]} {abandons} {len(options)}"
    params = params_of(name, 12)
    params[f"{name} large"] = torch.nn.Parameter(torch.zeros(batching.SMALL_BYTES))
    params[f"{name} unused"] = torch.nn.Parameter(torch.zeros(3))
    optimizer = optimizer_of(params, **options)
    used = list(enumerate(params.values()))[:-1]
    orders = [used, used, used[::-1], used]
    interrupt = Interrupt(place)
    for order in orders + 3 * [used]:
        sys.settrace(interrupt)
        try:
            optimizer.zero_grad()
            backward(params, order)
            optimizer.synchronize()
        except KeyboardInterrupt:
            sys.settrace(None)
            if not abandons:  # the step is completed; or it is an error, if a work number was lost
                with contextlib.suppress(hvd.HoroError, ValueError):
                    optimizer.synchronize()
            start_over(optimizer)
            hvd.barrier()
            for param in params.values():
                param.grad = None
            continue
        finally:
            sys.settrace(None)
        check({key: params[key] for key, _ in zip(params, used)})
        assert params[f"{name} unused"].grad is None
    return interrupt.places


def an_interrupt_at_any_line_costs_no_more_than_its_step():
    for options in ({}, {"gradient_as_bucket_view": True}):
        places = interrupted_steps(None, True, **options)
        assert len(places) > 100, len(places)
        some = sorted(places)[:: 1 if os.environ.get("LARGE_TESTS") else 4]
        for i, place in enumerate(some):
            interrupted_steps(place, i % 2 == 0, **options)


torch.set_num_threads(1)
claims.check(an_interrupt_at_any_line_costs_no_more_than_its_step)
