"""Opening: all ranks of a session open one checkpoint, or all of them raise the same error."""

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
    all ranks ValueError if the objects of a rank do not fit the checkpoint, HoroError if a rank cannot read it."""
    damage = refusal = reader = None
    room = ()
    try:
        reader = Reader(path)
        content.check(reader.index, path)
        room = content.room(reader.index)
        content.check_left(reader.index, [tensor for tensor, _ in room], path)
    except HoroError as error:
        damage = str(error)
    except ValueError as error:
        refusal = str(error)
    rows = gathered(session, "opened", [damage, refusal])
    refused = [f"rank {rank}: {text}" for rank, (_, text) in enumerate(rows) if text is not None]
    damaged = [text for text, _ in rows if text is not None]
    if (refused or damaged) and reader is not None:
        reader.close()
    if refused:
        raise ValueError(refusal if session is None else refused[0])
    if damaged:
        raise HoroError(damaged[0])
    return reader, room
