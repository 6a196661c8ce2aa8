"""Opening: all ranks of a session open one checkpoint, or all of them raise the same error."""

import ctypes

from horo.checkpoint.library import Reader
from horo.elastic import gathers
from horo.elastic.fields import from_json, to_json
from horo.errors import HoroError


def gathered(session, name, value):
    """The JSON value of each rank, by rank. session: None is one rank alone. Collective over the world; blocks."""
    if session is None:
        return [value]
    return [from_json(row) for row in gathers.gather(session, name, to_json(value))]


def opened(session, path, content):
    """(reader, room): the memory that is to be filled; see Content.room(). Collective over the world; blocks. Raises on
    all ranks ValueError if the objects of a rank do not fit the checkpoint, HoroError if a rank cannot read it. Another
    error of an object is raised on its rank, and ValueError on the others."""
    damage = refusal = reader = failure = None
    room, expanded = (), []
    try:
        reader = Reader(path)
        content.check(reader.index, path)
        room = content.room(reader.index)
        content.check_left(reader.index, [tensor for tensor, _ in room], path)
        expanded = [tensor.name for tensor, buffer in room if buffer.check is not None]
    except HoroError as error:
        damage = str(error)
    except ValueError as error:
        refusal = str(error)
    except Exception as error:  # of the objects of this rank
        refusal, failure = f"{type(error).__name__}: {error}", error
    rows = gathered(session, "opened", [damage, refusal, expanded])
    try:
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None  # which has this frame in its traceback
        _raise_first(session, [text for _, text, _ in rows])
        for text in (text for text, *_ in rows if text is not None):
            raise HoroError(text)
        if names := set().union(*(names for *_, names in rows)):
            _check_expanded(session, (reader, room), names, content.what)
    except BaseException:
        if reader is not None:
            reader.close()
        raise
    return reader, room


def _raise_first(session, texts):
    """Raises ValueError with the first of the texts of all ranks."""
    for rank, text in enumerate(texts):
        if text is not None:
            raise ValueError(text if session is None else f"rank {rank}: {text}")


def _check_expanded(session, pair, names, what):
    """Reads the tensors of these names, which are expanded on some rank, before any other is filled: raises ValueError,
    on all ranks, if one cannot have its bytes. pair: (reader, room). Collective over the world; blocks."""
    (reader, room), refusal = pair, None
    found, kept = [], []
    for tensor, buffer in room:
        if tensor.name in names:
            if not buffer.is_copy:
                kept.append(ctypes.create_string_buffer(max(1, buffer.nbytes)))
                tensor = tensor._replace(address=ctypes.addressof(kept[-1]))
            found.append(tensor._replace(is_new=True))
    reader.load(session, found)
    try:
        for _, buffer in room:
            if buffer.check is not None:
                buffer.check(what)
    except ValueError as error:
        refusal = str(error)
    _raise_first(session, gathered(session, "expanded", refusal))
