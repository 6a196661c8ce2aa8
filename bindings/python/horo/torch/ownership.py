"""Which optimizer reduces a parameter that several wrapped optimizers have: the one that was wrapped or used last."""

import weakref

from torch.utils.weak import WeakTensorKeyDictionary

_owners = WeakTensorKeyDictionary()  # parameter: weak reference to its DeclaredParameters


def owner_of(param):
    """The DeclaredParameters that reduce the parameter, or None."""
    found = _owners.get(param)
    return None if found is None else found()


def take(declared, param):
    """These DeclaredParameters reduce the parameter from now on. Those that did so until now lend it."""
    before = owner_of(param)
    if before is not None and before is not declared:
        before.lend(param)
    _owners[param] = weakref.ref(declared)


def drop(declared, param):
    """The parameter is not one of these DeclaredParameters any more."""
    if owner_of(param) is declared:
        del _owners[param]


def check(declared, states):
    """Raises ValueError if one of these lent parameters was reduced in another way than here."""
    for state in states:
        owner = owner_of(state.param)
        if owner is None or owner is declared or owner.kind() == declared.kind():
            continue
        raise ValueError(
            f"parameter {state.name} belongs to two DistributedOptimizers, and the one that was wrapped or used last "
            f"reduced its gradient with other options ({owner.kind()}) than this one expects ({declared.kind()}). "
            "Wrap both with the same options, or call zero_grad() of the optimizer in use before backward()"
        )
