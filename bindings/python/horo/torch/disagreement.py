"""Ranks that reduce different parameters: one has frozen a layer, or has given its optimizer other parameters.

The number of a round carries a digest of what the rank trains in it, so the first gradient of such a round fails on all
ranks, at no cost for other rounds (horo_begin_round). Then the ranks exchange the names, and the error tells them.
"""

import collections
import hashlib
import json
import re
import threading
import time

import torch

from horo._handles import synchronize, wait_until
from horo.errors import HoroError, Mismatch
from horo.torch import ops

WAIT_S = 10  # for the names of the other ranks; beyond it the error is raised as it is
DIGEST_BITS = 32
NAME = "parameters of the optimizers"
_MOST_NAMED = 5

# The texts of these errors. A rank that gets one gives its round up with this text as the reason, without the name of
# an exception in front: then the reason of another rank is the error of this rank, too. An exception of another kind,
# or of another process set, has its name in front (rounds.py). A stall or a deadlock is no sign: it does not reach all
# ranks.
_RANKS = r"ranks? [-0-9, ]+(?:and \d+ more )?"
_GIVEN_UP = re.compile(r"tensor '.*?: rank \d+ has given up round \d+ of step \d+: ", re.DOTALL)
_SIGN = re.compile(
    rf"tensor '.*?: {_RANKS}submits? other tensors in round \d+ of step \d+ than "
    r"|all_reduce of tensor '(?:layouts of |rounds of optimizers).*?: ranks disagree: "
    r"|layouts of .*?: the ranks have different parameters "
    r"|rounds of optimizers: the ranks have wrapped different optimizers",
    re.DOTALL,
)

_local = threading.local()  # .failed: the Streams whose rounds have failed by such errors


def digest(names):
    """32 bits of a hash of the names, in any order."""
    return int.from_bytes(hashlib.sha256("\0".join(sorted(names)).encode()).digest()[:4], "little")


def with_digest(number, bits):
    """The number of a round that carries a digest; see horo_begin_round."""
    return number + 1 << DIGEST_BITS | bits


def is_sign(error):
    """Whether ranks that reduce different parameters may have caused the error. All ranks of the set get it then."""
    if not isinstance(error, Mismatch):
        return False
    text = str(error)
    while (head := _GIVEN_UP.match(text)) is not None:
        text = text[head.end() :]
    return _SIGN.match(text) is not None


def find(session, works):
    """The first such error of works that have ended, or None."""
    for work in works:
        if work != 0 and session.has_ended(work):
            try:
                session.wait([work])
            except HoroError as error:
                if is_sign(error):
                    return error
    return None


def mark(error, process_set, stream):
    """The error has ended a round of this Stream in this set."""
    if is_sign(error):
        error.process_set = process_set
        _local.failed = [*getattr(_local, "failed", ()), stream]


def marked_set(error):
    """The process set that a mark() has told; all of its ranks have the error. None: there was none."""
    return getattr(error, "process_set", None)


def _start_anew():
    """The streams of all sets in which a round of this thread has failed. Each rank does so on its own, because a rank
    that waits for a late one gives up after WAIT_S, and the late one does not see that."""
    failed, _local.failed = getattr(_local, "failed", ()), ()
    for stream in failed:
        stream.start_anew()


def explained(error, in_round, living):
    """The error with the names of the parameters in which the ranks differ; an error without a mark() as it is.
    in_round: the Gradients of the round that has failed; living: all. All ranks of the set call this for their errors.
    Blocks for at most WAIT_S. From then on the streams of the set count anew."""
    _start_anew()
    process_set = vars(error).pop("process_set", None)
    if process_set is None:
        return error
    try:
        rows = _rows_of_all(process_set, in_round, living)
    except (HoroError, ValueError):  # the session has ended, or the last exchange was left
        return error
    text = rows and difference(rows, process_set.ranks)
    if not text:
        return error
    return Mismatch(
        f"{text}. Nothing was changed; give the optimizers of all ranks the same parameters, and freeze and unfreeze "
        "them on all ranks before the same backward()"
    )


def _rows_of_all(process_set, in_round, living):
    """What each rank has in the optimizers of this set: {name: (whether it is trained, whether it is in the round)}, by
    place. None: a rank is late."""
    mine = {}
    for gradients in sorted(living, key=in_round.__contains__):
        if gradients.declared.process_set == process_set:
            is_in_round = gradients in in_round
            mine.update((state.name, (state.param.requires_grad, is_in_round)) for state in gradients.declared.states)
    row = torch.frombuffer(bytearray(json.dumps(mine).encode()), dtype=torch.uint8)
    handle = ops.allgather_async(row, NAME, process_set, with_rows=True)
    if not wait_until(handle, time.monotonic() + WAIT_S):
        return None
    gathered, sizes = synchronize(handle)
    return [json.loads(bytes(part.tolist())) for part in gathered.split(list(sizes))]


def difference(rows, ranks):
    """Names the parameters in which the rows of these ranks differ, as text; empty: none."""
    names = list(dict.fromkeys(name for row in rows for name, (_, is_in_round) in row.items() if is_in_round))
    kinds = collections.defaultdict(list)  # equal differences, told together
    for name in names:
        states = tuple(row[name][0] if name in row else None for row in rows)
        if len(set(states)) > 1:
            kinds[states].append(name)
    return "; ".join(_told(names, states, ranks) for states, names in kinds.items())


_STATES = {
    True: "trained on {}",
    False: "frozen (requires_grad=False) on {}",
    None: "in no optimizer of {}",
}


def _told(names, states, ranks):
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    by_state = {state: [rank for rank, one in zip(ranks, states) if one is state] for state in (False, None, True)}
    parts = [_STATES[state].format(_listed(of)) for state, of in by_state.items() if of]
    what = f"parameter {names[0]} is" if len(names) == 1 else f"parameters {', '.join(names[:_MOST_NAMED])}{more} are"
    return f"{what} {', and '.join(parts)}"


def _listed(ranks):
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
