"""Converts the seconds of all rounds to the rows of the table."""

import statistics


def _ms(seconds):
    known = [one for one in seconds if one is not None]
    return round(statistics.median(known) * 1000, 3) if known else None


def row_of(backward_ms, case):
    """Medians over rounds; a share is the median of the shares of each round."""
    transfer = case["transfer"]
    row = {"backward_ms": backward_ms, "transfer_ms": _ms(transfer), "contestants": {}}
    for name, turns in case.items():
        if name == "transfer":
            continue
        figures = {"backward_ms": _ms(turns["backward"]), "reduced_ms": _ms(turns["reduced"])}
        figures |= {"next_forward_ms": _ms(turns["first"]), "forward_done_ms": _ms(turns["forward"])}
        hidden = [1 - late / alone for late, alone in zip(turns["reduced"], transfer) if late is not None]
        figures["hidden"] = round(statistics.median(hidden), 4) if hidden else None
        earlier = [1 - mine / fifo for mine, fifo in zip(turns["first"], case["fifo"]["first"])]
        figures["earlier_than_fifo"] = round(statistics.median(earlier), 4)
        row["contestants"][name] = figures | {f"round_{key}_s": value for key, value in turns.items()}
    return row | {"round_transfer_s": transfer}


def _text(value, form="{:.1f}"):
    return "-" if value is None else form.format(value)


def table(rows):
    lines = ["backward  transfer  contestant         reduced  hidden  next forward  earlier  forward done"]
    for row in rows:
        for name, one in row["contestants"].items():
            lines.append(
                f"{row['backward_ms']:>8}  {row['transfer_ms']:8.1f}  {name:<17}  {_text(one['reduced_ms']):>7}  "
                f"{_text(one['hidden'], '{:.1%}'):>6}  {_text(one['next_forward_ms']):>12}  "
                f"{_text(one['earlier_than_fifo'], '{:.0%}'):>7}  {_text(one['forward_done_ms']):>12}"
            )
    return "\n".join(lines)
