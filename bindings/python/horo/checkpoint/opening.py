"""What all ranks of a session do together, or none: they open one checkpoint, or all of them raise an error."""

import ctypes
import itertools

from horo.checkpoint.library import Reader
from horo.elastic import gathers
from horo.elastic.fields import from_json, to_json
from horo.errors import HoroError


def gathered(session, name, value):
    """The JSON value of each rank, by rank. session: None is one rank alone. Collective over the world; blocks."""
    if session is None:
        return [value]
    return [from_json(row) for row in gathers.gather(session, name, to_json(value))]


def together(session, name, act):
    """What a function returns that each rank calls. Collective over the world; blocks. An error of a rank is raised
    there, and ValueError with its text on the others: none goes on to a collective that a rank does not begin.
    HoroError, of a collective in it, is one of all ranks. name: of the exchange."""
    result = failure = None
    try:
        result = act()
    except HoroError:
        raise
    except Exception as error:
        failure = error
    texts = gathered(session, name, failure and _text_of(failure))
    try:
        if failure is not None:
            raise failure
        _raise_first(session, texts)
    finally:
        failure = None  # which has this frame in its traceback
    return result


def _text_of(error):
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def opened(session, path, content):
    """(reader, room): the memory that is to be filled; see Content.room(). Collective over the world; blocks. Raises on
    all ranks ValueError if the objects of a rank do not fit the checkpoint, HoroError if a rank cannot read it. Another
    error of an object is raised on its rank, and ValueError on the others."""
    damage = refusal = reader = failure = None
    room, tied, early = (), [], []
    try:
        reader = Reader(path)
        content.check(reader.index, path)
        room = content.room(reader.index)
        content.check_left(reader.index, [tensor for tensor, _ in room], path)
        tied = content.tied(reader.index)
        early = [tensor.name for tensor, buffer in room if buffer.check is not None]
        early += [tensor.name for group in tied for tensor, _ in group]
    except HoroError as error:
        damage = str(error)
    except ValueError as error:
        refusal = str(error)
    except Exception as error:  # of the objects of this rank
        refusal, failure = _text_of(error), error
    rows = gathered(session, "opened", [damage, refusal, early])
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
            _read_early(session, (reader, room, tied), names, content.what)
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


def _read_early(session, opened, names, what):
    """Reads the tensors of these names before any other is filled: raises ValueError, on all ranks, if what a rank has
    cannot have their bytes, as it is expanded there, or one tensor that is several in the checkpoint. opened: (reader,
    room, tied). Collective over the world; blocks."""
    (reader, room, tied), refusal = opened, None
    copies, tensors, kept = {tensor.name for tensor, buffer in room if buffer.is_copy}, {}, {}
    for tensor, nbytes in (*itertools.chain(*tied), *((tensor, buffer.nbytes) for tensor, buffer in room)):
        if tensor.name in names:
            if tensor.name not in copies:
                kept[tensor.name] = ctypes.create_string_buffer(max(1, nbytes))
                tensor = tensor._replace(address=ctypes.addressof(kept[tensor.name]))
            tensors[tensor.name] = tensor._replace(is_new=True)
    reader.load(session, [tensors[name] for name in sorted(tensors)])
    try:
        for _, buffer in room:
            if buffer.check is not None:
                buffer.check(what)
        for group in tied:
            if len({ctypes.string_at(tensors[tensor.name].address, nbytes) for tensor, nbytes in group}) > 1:
                several = " and ".join(tensor.name for tensor, _ in group)
                raise ValueError(f"{what}: {several} differ; expected equal tensors, as they are one here")
    except ValueError as error:
        refusal = str(error)
    _raise_first(session, gathered(session, "early", refusal))
