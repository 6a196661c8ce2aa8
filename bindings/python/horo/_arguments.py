"""The arguments of the public API, checked in one place.

Each function returns the value in the form that the library takes, or raises ValueError with the argument's name, the
value and what was expected. In Python True is the integer 1, members of other libraries' enumerations are equal to
small integers, and every object is true or false: none of these is taken for something else here.
"""

import numbers
import operator

_BOOL_DTYPES = ("bool", "torch.bool")  # of arrays and tensors of one element


def _is_bool(value):
    return isinstance(value, bool) or str(getattr(value, "dtype", None)) in _BOOL_DTYPES


def whole(value, what, expected="a whole number", least=None):
    """A whole number: an int, or an integer of a framework."""
    if type(value) is int:
        number = value
    else:
        try:
            number = None if _is_bool(value) else operator.index(value)
        except TypeError:
            number = None
    if number is None or (least is not None and number < least):
        raise ValueError(f"{what}={value!r}; expected {expected}")
    return number


def rank_number(value, what, expected="a rank"):
    """The number of a rank: not of more bits than the library has for one."""
    number = whole(value, what, expected, -(1 << 31))
    if number >= 1 << 31:
        raise ValueError(f"{what}={value!r}; expected {expected}")
    return number


def flag(value, what):
    """True or False."""
    if isinstance(value, bool):
        return value
    if str(getattr(value, "dtype", None)) == "bool" and getattr(value, "shape", None) == ():  # numpy.True_
        return bool(value)
    raise ValueError(f"{what}={value!r}; expected True or False")


def factor(value, what):
    """A real number, as a float."""
    if type(value) is float:
        return value
    if isinstance(value, numbers.Real) and not _is_bool(value):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{what} is {str(value)[:20]}...; expected a number that fits into a float64") from None
    hint = "; of a tensor or an array of one element, item() is the number" if hasattr(value, "item") else ""
    raise ValueError(f"{what}={value!r}; expected a number{hint}")


def encoded(value, what):
    """A text for the library, which takes it as bytes of UTF-8 that end with a NUL."""
    if not isinstance(value, str):
        raise ValueError(f"{what}={value!r}; expected a text, not of type {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{what}={value!r}: it has the character NUL, at which the library would cut it")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what}={value!r}: the character {value[error.start]!r} is half of a pair and has no UTF-8"
        ) from None


def report(value):
    """A text for messages, as bytes: what has no UTF-8 is replaced, and NULs are shown."""
    return value.replace("\0", "\\0").encode(errors="replace")
