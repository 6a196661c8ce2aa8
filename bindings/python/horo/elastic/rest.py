"""The small values of a state as JSON. Tensors and arrays stay out: a list keeps them, and JSON has their places in it.

JSON keeps None, booleans, integers of 64 bits, finite floats (all bits), strings, lists and dicts with keys that are
strings; other values are marked by a dict with one of the keys of MARKS. Nothing is pickled, unless the caller
trusts it. So a rank that joins runs no code that another rank has sent.
"""

import base64
import collections
import math
import pickle
import sys

MARKS = ("~tensor", "~tuple", "~dict", "~bytes", "~set", "~number", "~scalar", "~pickle", "~int", "~float")
CONTAINERS = (list, tuple, dict, set, frozenset)
MAPPINGS = (dict, collections.OrderedDict, collections.Counter)  # MultiStepLR has a Counter
_PLAIN = (type(None), bool, str)
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1  # integers that every reader of JSON keeps


def is_tensor(value):
    """Whether the value is a torch tensor or a NumPy array; not a masked one, whose mask is no part of its bytes.
    Imports neither library."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return True
    return numpy is not None and isinstance(value, numpy.ndarray) and not isinstance(value, numpy.ma.MaskedArray)


def _is_numpy_scalar(value):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.number, numpy.bool_))


def _numpy_scalar(content):
    import numpy

    return numpy.dtype(content[0]).type(content[1])


class Encoder:
    """Makes one value JSON. tensors: [(path, tensor)] after encode(); a path is that of the value in its field."""

    def __init__(self, field, trust=False):
        """field: its name, for messages. trust: values of other types are pickled."""
        self.field, self.trust = field, trust
        self.tensors = []

    def encode(self, value, path=""):
        """The JSON value. Raises TypeError, with the field and the path, for a value of another type."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is int:
            return value if _LEAST <= value <= _MOST else {"~int": str(value)}
        if kind is float:
            return value if math.isfinite(value) else {"~float": str(value)}
        if kind is list:
            return [self.encode(one, f"{path}.{place}") for place, one in enumerate(value)]
        if is_tensor(value):
            self.tensors.append((path.lstrip("."), value))
            return {"~tensor": len(self.tensors) - 1}
        if kind is tuple:
            return {"~tuple": [self.encode(one, f"{path}.{place}") for place, one in enumerate(value)]}
        if kind in MAPPINGS:
            return self._mapping(value, path)
        if kind is bytes:
            return {"~bytes": base64.b64encode(value).decode()}
        if kind in (set, frozenset):
            return {"~set": [self.encode(one, path) for one in sorted(value, key=repr)], "kind": kind.__name__}
        if kind is complex:
            return {"~number": [self.encode(value.real), self.encode(value.imag)]}
        if _is_numpy_scalar(value) and (kind(item := value.item()) == value or value != value):
            if type(item) in (bool, int, float, complex):  # a longdouble has none of these
                return {"~scalar": [str(value.dtype), self.encode(item)]}
        return self._other(value, path)

    def _mapping(self, value, path):
        items = [(key, self.encode(one, f"{path}.{key}")) for key, one in value.items()]
        if type(value) is dict and all(type(key) is str for key in value) and not set(MARKS) & set(value):
            return dict(items)
        return {"~dict": [[self.encode(key, path), one] for key, one in items], "kind": type(value).__name__}

    def _other(self, value, path):
        where = f"the field {self.field!r}" + (f" at {path.lstrip('.')}" if path else "")
        if not self.trust:
            raise TypeError(
                f"horo: {where} is a {type(value).__module__}.{type(value).__name__}, which can neither be saved nor "
                "be given to a rank that joins. Expected a module, optimizer, scheduler, tensor, array, Sampler, "
                "number, string, list or dict, or an object with horo_state() or state_dict(); trust=True pickles "
                "others"
            )
        try:
            return {"~pickle": base64.b64encode(pickle.dumps(value)).decode()}
        except Exception as error:
            raise TypeError(f"horo: {where} cannot be pickled: {error}") from error


def decode(value, tensors, trust=False, what="horo.elastic.State"):
    """The value of a JSON value. tensors: by place. Raises ValueError if it is pickled and the caller has no trust;
    what: the beginning of the message."""

    def back(value):
        if isinstance(value, list):
            return [back(one) for one in value]
        if not isinstance(value, dict):
            return value
        mark = next((mark for mark in MARKS if mark in value), None)
        if mark is None:
            return {key: back(one) for key, one in value.items()}
        content = value[mark]
        if mark == "~tensor":
            return tensors[content]
        if mark == "~dict":
            kind = next(kind for kind in MAPPINGS if kind.__name__ == value["kind"])
            return kind({back(key): back(one) for key, one in content})
        if mark == "~set":
            return (set if value["kind"] == "set" else frozenset)(back(one) for one in content)
        if mark == "~pickle":
            if not trust:
                raise ValueError(f"{what}: a pickled value; expected trust=True on all ranks, or --trust")
            return pickle.loads(base64.b64decode(content))
        makers = {"~tuple": lambda: tuple(map(back, content)), "~bytes": lambda: base64.b64decode(content)}
        makers |= {"~int": lambda: int(content), "~float": lambda: float(content)}
        makers |= {"~scalar": lambda: _numpy_scalar(back(content)), "~number": lambda: complex(*map(back, content))}
        return makers[mark]()

    return back(value)
