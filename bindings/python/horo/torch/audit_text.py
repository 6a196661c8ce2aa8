"""The message of a finding of the audit."""


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
