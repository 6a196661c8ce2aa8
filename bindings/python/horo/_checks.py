"""The arguments of collectives that describe rows and factors, checked before anything is submitted."""

from horo import _default
from horo._arguments import factor, whole
from horo._specs import rows_of


def factors_of(prescale, postscale):
    """The arguments prescale_factor and postscale_factor."""
    if type(prescale) is float and type(postscale) is float:
        return prescale, postscale
    return factor(prescale, "prescale_factor"), factor(postscale, "postscale_factor")


def check_rows(array, call):
    if not array.shape:
        raise RuntimeError(
            f"horo.{call}: rank {_default.rank()} tried to {call} a rank-zero tensor; expected at least one dimension, "
            "as of tensor.reshape(1)"
        )


def check_member(process_set):
    """Raises what the call would raise, before rows of this rank are looked up."""
    if not process_set.included():
        ranks = ", ".join(map(str, process_set.ranks))
        raise ValueError(
            f"rank {_default.rank()} is not in process set {process_set.number()}, which has the ranks {ranks}"
        )


def known_rows(rows, process_set, array):
    """The argument rows of allgather, by member."""
    check_member(process_set)
    rows = numbers_of(rows, "allgather", "rows")
    members, mine = process_set.members(), process_set.rank()
    if process_set.shrinks and _default.session().is_elastic:
        raise ValueError(
            f"horo.allgather: rows={rows} for {process_set!r} in an elastic job, whose members may change during the "
            "call; leave it out, and take the rows of the result by with_rows=True"
        )
    if len(rows) != members or min(rows) < 0:
        raise ValueError(f"horo.allgather: rows={rows}; expected the number of rows from each of {members} members")
    if rows[mine] != array.shape[0]:
        raise ValueError(
            f"horo.allgather: rows={rows}, and the tensor of rank {_default.rank()} has {array.shape[0]} rows; "
            f"expected {rows[mine]}, as it is member {mine}"
        )
    return tuple(rows)


def check_out(memory, shape, call, is_exact=False):
    """shape: of the result; its rows are the fewest that out may have, unless it has to have exactly these."""
    found = tuple(memory.shape)
    fits = len(found) == len(shape) and found[1:] == shape[1:] and found[0] >= shape[0]
    if not fits or (is_exact and found[0] != shape[0]):
        raise ValueError(
            f"horo.{call}: out has the shape {list(found)}; expected {list(shape)}"
            + ("" if is_exact else ", or more rows")
        )


def numbers_of(splits, call, what="splits"):
    """Row counts by member, from a list or an array of integers."""
    expected = "a list or an array with an integer for each member"
    rows = splits.tolist() if hasattr(splits, "tolist") else splits
    if not isinstance(rows, (list, tuple, range)):
        raise ValueError(f"horo.{call}: {what}={splits!r}; expected {expected}")
    return [whole(each, f"horo.{call}: {what}={splits!r}: an entry", expected) for each in rows]


def check_splits(splits, rows, members, call):
    if len(splits) != members:
        raise ValueError(
            f"horo.{call}: Number of entries in splits ({len(splits)}) does not equal number of workers ({members})"
        )
    if min(splits) < 0:
        raise ValueError(f"horo.{call}: splits={splits}; expected no negative entry")
    if sum(splits) > rows:
        raise ValueError(
            f"horo.{call}: Sum of splits entries ({sum(splits)}) is greater than the first dimension ({rows})"
        )


def splits_of_all(splits, rows, process_set):
    """The argument splits of a reducescatter of so many rows, by member."""
    check_member(process_set)
    splits = numbers_of(splits, "reducescatter")
    check_splits(splits, rows, process_set.members(), "reducescatter")
    if sum(splits) != rows:
        raise ValueError(f"horo.reducescatter: splits={splits}; expected the sum {rows}, the rows of the tensor")
    return tuple(splits)


def own_rows(spec, process_set):
    """The rows of this rank if those of a spec are dealt evenly."""
    return rows_of(spec.shape[0], process_set.members(), process_set.rank())
