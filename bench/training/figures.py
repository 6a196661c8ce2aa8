"""The measured times as rows and as a table, and sentences about failed checks."""

import statistics

NOT_REDUCED = ("none", "ddp-no-sync")  # ranks of these train independently
MOST_DISTANCE = 0.01  # from ddp's parameters, of the distance that ddp's have moved
COLUMNS = {  # title of the column: key of the row, width, digits after the point (None: text)
    "model": ("model", 12, None),
    "ranks": ("ranks", 5, 0),
    "contestant": ("contestant", 12, None),
    "step ms": ("step_ms", 9, 2),
    "samples/s": ("samples_per_s", 10, 1),
    "exposed ms": ("exposed_ms", 11, 2),
    "exposed/ddp": ("exposed_to_ddp", 11, 2),
    "samples/ddp": ("samples_to_ddp", 11, 2),
}


def header():
    return "  ".join(f"{name:{'<' if digits is None else '>'}{width}}" for name, (_, width, digits) in COLUMNS.items())


def _median(values):
    """The median of the values that are not None; None without any."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _ratios(ours, theirs):
    """The ratio of each round; None where noise makes the denominator zero or less."""
    return [a / b if b > 0 else None for a, b in zip(ours, theirs)]


def _exposed(result, name):
    """Exposed seconds per step, for each round; None unless `none` and this contestant were measured."""
    field, steps = result["contestants"], result["steps"]
    if name not in field or "none" not in field:
        return None
    return [(a - b) / steps for a, b in zip(field[name]["turn_s"], field["none"]["turn_s"])]


def _against(result, name, other):
    """Ratios to another contestant: of exposed communication, of samples per second. None where not measured."""
    field = result["contestants"]
    ours, theirs = _exposed(result, name), _exposed(result, other)
    exposed = None if name in NOT_REDUCED or ours is None or theirs is None else _median(_ratios(ours, theirs))
    samples = _median(_ratios(field[other]["turn_s"], field[name]["turn_s"])) if other in field else None
    return exposed, samples


def rows_of(result):
    """One row for each contestant."""
    shared = {key: result[key] for key in ("model", "ranks", "threads", "tensors", "bytes", "steps", "quiet")}
    rows = []
    for name, one in result["contestants"].items():
        exposed = _exposed(result, name)
        step_ms = [seconds / result["steps"] * 1000 for seconds in one["turn_s"]]
        row = {"contestant": name, **shared, "rounds": len(step_ms), "step_ms": _median(step_ms)}
        row["samples_per_s"] = result["samples"] * 1000 / row["step_ms"]
        row["exposed_ms"] = None if exposed is None or name == "none" else _median(exposed) * 1000
        row["exposed_to_ddp"], row["samples_to_ddp"] = _against(result, name, "ddp")
        row["exposed_to_ddp_view"], row["samples_to_ddp_view"] = _against(result, name, "ddp-view")
        rows.append(row | {"loss": one["loss"], "sha256": one["sha256"], "round_step_ms": step_ms})
    return rows


def _cell(value, width, digits):
    if value is None:
        return f"{'-':>{width}}"
    return f"{value:{width}}" if digits is None else f"{value:{width}.{digits}f}"


def table(rows):
    return "\n".join("  ".join(_cell(row[key], *form) for key, *form in COLUMNS.values()) for row in rows)


def check(result):
    """Yields a sentence for each failed check."""
    field = result["contestants"]
    for name, one in field.items():
        before, after = one["loss"]
        if not after < before:
            yield f"{name}: the loss was {before:.4g} at first and {after:.4g} in the end"
        if name in NOT_REDUCED:
            continue
        if len(set(one["sha256"])) != 1:
            yield f"{name}: ranks end with different parameters: {', '.join(one['sha256'])}"
        if "ddp" in field and one["from_ddp"] > MOST_DISTANCE * field["ddp"]["moved"]:
            way = f"{one['from_ddp']:.3g} from ddp's, which moved {field['ddp']['moved']:.3g}"
            yield f"{name}: after {result['compared_steps']} steps its parameters are {way}"
