"""Rows of the table: what was seen beside what must be and what is aimed at."""

import statistics

MS = 1000  # us


def _row(figure, unit, values, **more):
    values = [round(value) for value in values]
    middle = round(statistics.median(values))
    return {"figure": figure, "unit": unit, "median": middle, "max": max(values)} | more | {"values": values}


def of_pause(mib, joins):
    """Limits are those of the medians: T + 30 ms + 1.5 S/bw and T + 20 ms + 1.1 S/bw."""
    step, copy = (statistics.median(getattr(one, name) for one in joins) for name in ("step", "copy"))
    limits = {"must": round(step + 30 * MS + 1.5 * copy), "aim": round(step + 20 * MS + 1.1 * copy)}
    more = limits | {"step": round(step), "copy": round(copy)}
    return _row(f"pause of the survivors, {mib} MiB", "us", [one.pause for one in joins], **more)


def of_native(mib, joins):
    limits = {"must": 2000 * MS, "aim": 1000 * MS}
    return _row(f"exec of a native rank to its first round, {mib} MiB", "us", [one.start for one in joins], **limits)


def of_peers(found):
    """found: {name: its joins}, of horo and, if it is there, torchft."""
    rows = []
    for name, joins in found.items():
        slow = {"must": 85 * MS, "must_max": 150 * MS, "aim": 60 * MS, "aim_max": 100 * MS}
        start, model = {"must": 4500 * MS, "aim": 3500 * MS}, {"must": 300 * MS, "aim": 100 * MS}
        kinds = (("slowest step of the others", "slowest", slow), ("start to first round", "start", start))
        for what, key, limits in (*kinds, ("model ready to first round", "model", model)):
            more = {"step": round(statistics.median(one.step for one in joins))}
            more |= limits if name == "horo" else {}
            rows.append(_row(f"{name}: {what}", "us", [getattr(one, key) for one in joins], **more))
    return rows


def of_cost(rounds):
    """Of the time of a step, and of the time of the processor, which other programs on the machine change less."""
    rows = []
    for place, what in enumerate(("step", "processor time of a step")):
        ratios = [10_000 * one["growing"][place] / one["plain"][place] for one in rounds]
        usual = round(statistics.median(one["plain"][place] for one in rounds))
        limits = {"must": 10_100, "aim": 10_030} if place == 0 else {}
        rows.append(_row(f"{what}: could grow / only shrinks", "1/10000", ratios, step=usual, **limits))
    return rows


def verdict(row):
    """Which of the limits the row keeps: aim, must, or none of them."""

    def keeps(name):
        is_most = row["max"] <= row.get(f"{name}_max", row["max"])
        return row["median"] <= row[name] and is_most

    if "must" not in row:
        return ""
    return "aim" if keeps("aim") else "must" if keeps("must") else "MISSED"


def _text(row, name):
    """The median and the maximum, or one limit, in the unit of the table."""
    if name not in row:
        return "-"
    scale, digits = (1e4, 4) if row["unit"] == "1/10000" else (1e3, 1)
    most = {"median": "max"}.get(name, f"{name}_max")
    pair = [row[one] for one in (name, most) if one in row]
    return " / ".join(f"{value / scale:.{digits}f}" for value in pair)


def header():
    return (
        f"{'figure (ms; ratio)':56}{'median / max':>20}{'must':>16}{'aim':>16}  keeps  further\n"
        "further: step and copy are T and S/bw, ms"
    )


def line(row):
    further = [f"{name} {row[name] / MS:.1f}" for name in ("step", "copy") if name in row]
    cells = "".join(f"{_text(row, name):>{width}}" for name, width in (("median", 20), ("must", 16), ("aim", 16)))
    return f"{row['figure']:56}{cells}  {verdict(row):6} {', '.join(further)}"
