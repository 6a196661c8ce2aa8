"""The texts of the audit: the message of a finding, where a warning points to, and the names of optimizers."""

import hashlib
import os
import sys

import torch

import horo

_LIBRARIES = tuple(os.path.dirname(os.path.abspath(each.__file__)) + os.sep for each in (horo, torch))


def _listed(ranks):
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= 8:
        return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks[:7]))} and {len(ranks) - 7} more"


def text_of(finding, title, between, step):
    """The message of a Finding of the look after a step. title: of the optimizer. between: see ReplicasDiffer."""
    return (
        f"{title}: {_difference(finding)}. {_extent(finding)}{_when(between, step)} docs/audit.md lists likely causes."
    )


def _difference(finding):
    most, *others = finding.groups
    if len({text for text, _ in finding.groups}) > 1:
        parts = [f"{'absent' if text is None else text} on {_listed(ranks)}" for text, ranks in [*others, most]]
        return f"{finding.label} is not equal on all ranks: {', '.join(parts)}"
    parts = [f"{_listed(ranks)} differ{'s' if len(ranks) == 1 else ''}" for _, ranks in others]
    return f"{finding.label} is not equal on all ranks: {', '.join(parts)} from {_listed(most[1])}"


def _extent(finding):
    if not finding.is_complete:
        return "The ranks have different entries, so that not all were compared. "
    if len(finding.keys) == 1:
        return ""
    more = len(finding.keys) - 1 - len(finding.others)
    return f"Also different: {', '.join(finding.others)}{f' and {more} more' if more else ''}. "


def _when(between, step):
    equal, found = between
    still = "" if found == step else f", and still after step {step}"
    if equal == found:
        return f"Equal in a look after step {equal}, different in a later look before the next step{still}."
    last = "no earlier look has compared it" if equal is None else f"equal after step {equal}"
    return f"Different after step {found}{still}; {last}."


def key_of(optimizer, names, taken):
    """A key of class and parameter names, and a number that makes it another one than those of the names in use."""
    params = [names(param) for group in optimizer.param_groups for param in group["params"]]
    digest = hashlib.blake2b(repr((type(optimizer).__name__, params)).encode(), digest_size=8).hexdigest()
    number = 0
    while f"horo.audit.{digest}.{number}" in taken:
        number += 1
    return f"{digest}.{number}"


def levels():
    """The stacklevel of a warning for the innermost caller outside of horo and torch."""
    levels, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        levels, frame = levels + 1, frame.f_back
    return levels
