"""The sentence of horo on a late rank, and what it has to be."""

import dataclasses
import re

SENTENCE = re.compile(
    r"(?P<exposed>\d+) % of the time the ranks wait for one another(?:, (?P<share>\d+) % of that for rank "
    r"(?P<rank>\d+): it is late (?P<when>.+), by (?P<late>[\d.]+) ms; (?P<why>.+)"
    r"|(?P<data>: steps take as long as their data are.*)"
    r"|, for no single rank)"
)
LEAST = 1.0  # milliseconds by which a figure may be wrong


@dataclasses.dataclass
class Expected:
    """rank: None: none may be blamed. when, why: parts of the sentence. place: of the delay, whose size is compared."""

    rank: int | None = None
    when: str = ""
    why: str = ""
    place: str = ""


def is_near(found, planted, share=0.1):
    return abs(found - planted) <= max(share * planted, LEAST)


def mistakes(window, expected):
    """What is wrong with the sentence: a list of texts."""
    found = SENTENCE.fullmatch(window.late) if window.late else None
    if window.late and not found:
        return [f"not understood: {window.late!r}"]
    if expected.rank is None:
        if found and found["rank"]:
            return [f"blames a rank: {window.late!r}"]
        return [] if expected.why in window.late else [f"expected {expected.why!r}: {window.late!r}"]
    if not found or found["rank"] != str(expected.rank):
        return [f"expected rank {expected.rank}: {window.late!r}"]
    wrong = [
        f"expected {part!r}: {window.late!r}"
        for part, text in ((expected.when, found["when"]), (expected.why, found["why"]))
        if part not in text
    ]
    if not expected.place:
        return wrong
    planted = window.planted(expected.rank, expected.place)
    told = {"by": float(found["late"])}
    if excess := re.search(r"([\d.]+) ms", found["why"]):
        told["excess"] = float(excess[1])
    return wrong + [
        f"{name} {size:.2f} ms, planted {planted:.2f} ms: {window.late!r}"
        for name, size in told.items()
        if not is_near(size, planted)
    ]
