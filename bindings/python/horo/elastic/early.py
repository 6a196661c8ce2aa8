"""early: a rank that has joined in the middle of a pass calls no collective before its first batch.

The other ranks are behind the start of the function and of the pass, and do not call it. Without this check all ranks
would wait for one another, and end with the error of a deadlock; so the rank that has joined alone gets an error.
"""


def refuse(session, member):
    """From now on collectives of the script raise RuntimeError. Gradients are submitted in another way."""

    def submit(what, *_, **__):
        name = what if isinstance(what, str) else getattr(what, "name", None)
        call = f"a collective of tensor {name!r}" if name else "a collective"
        raise RuntimeError(
            f"horo.elastic: rank {member} has joined in the middle of a pass, and its script calls {call} before its "
            "first batch, which the other ranks do not: call it before the function of horo.elastic.run, or after a "
            "batch was received"
        )

    session.submit = session.submit_unit = submit


def allow(session):
    """Takes refuse() back."""
    for name in ("submit", "submit_unit"):
        vars(session).pop(name, None)
