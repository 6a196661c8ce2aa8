"""Checkpoints: folders of safetensors files that any number of ranks loads. See docs/checkpoint.md.

    horo.checkpoint.save("ckpt/last", {"model": model, "optimizer": optimizer, "epoch": 7})
    epoch = horo.checkpoint.load("ckpt/last", {"model": model, "optimizer": optimizer, "epoch": 0})["epoch"]

State.keep() saves a State at borders by itself.
"""

import os

from horo import _default
from horo._arguments import flag
from horo.checkpoint import opening, saving
from horo.checkpoint.content import Content, fields_of, path_text, rest_of
from horo.checkpoint.library import list_of
from horo.checkpoint.saving import Saving
from horo.elastic.buffers import finish
from horo.elastic.state import State
from horo.errors import HoroError

__all__ = ["Saving", "load", "save"]


def save(path, x, trust=False):
    """Writes x into the folder `path`, in the background, and returns a Saving when the memory is copied: tensors may
    change from then on. A checkpoint of this path is replaced when the new one is whole.

    x: a State, or a dict of fields by name, of the types that a State takes. Collective over the world: all ranks save
    equal tensors under the same path, on a file system that they share; alone, without init(), it is that of one rank.
    Each rank writes its part of them; numbers, texts, lists and dicts are those of rank 0. trust: values of unknown
    types are pickled. shutdown() and the end of the process wait until it is written, and so does the next save.
    Blocks. Raises TypeError for a value of another type, ValueError if names, types or shapes of tensors differ between
    ranks, HoroError with the reason if the folder cannot be written. An error of one rank is raised there, and
    ValueError on the others."""
    what, session = "horo.checkpoint.save", _default.current()
    path, _ = opening.together(session, "save", lambda: (path_text(path, what), _fields(x, trust, what)))
    place = x._place() if isinstance(x, State) else {}
    if isinstance(x, State) and session is not None:
        x._prepare_save()
    while True:
        content, rest, tensors = opening.together(session, "content", lambda: _content_to_save(x, trust, place))
        try:
            return saving.write(path, session, rest, tensors, place.get("step", 0))
        except ValueError:
            if content.is_current():
                raise


def _content_to_save(x, trust, place):
    """(Content, its rest, its tensors). Collective over the world; blocks."""
    content = Content(_fields(x, trust, "horo.checkpoint.save"), "horo.checkpoint.save")
    return content, content.rest(place), content.tensors()


def load(path, x, trust=False):
    """Fills the objects in x with those of the checkpoint, in place. Returns {name: value} of the plain values, such as
    numbers, texts, lists and dicts; those of a State are set, too.

    path: a checkpoint, or a folder of State.keep(), of which it takes the newest whole one. x: as for save(); it may
    have some of the fields. Collective over the world; the number of ranks may be another one than that of the save.
    Memory in use, such as that of parameters, is written when all files are verified; new memory, such as that of the
    state of an optimizer, is written as it is read, and x gets it afterwards. Blocks. Raises ValueError, with the name,
    where the checkpoint has another type, shape or dtype, or where a tensor of x cannot be set; HoroError, with the
    file, for damage; in both cases x is as it was. What else one rank raises before is raised there, and ValueError on
    the others."""
    what, session = "horo.checkpoint.load", _default.current()
    path, fields = opening.together(session, "load", lambda: (path_text(path, what), _fields(x, trust, what)))
    saving.finish()  # it may be of this path
    content = opening.together(session, "content", lambda: Content(fields, what))
    for candidate in _candidates(session, path):
        try:
            reader, room = opening.opened(session, candidate, content)
            reader.load(session, [tensor for tensor, _ in room], verify_first=True)
            break
        except HoroError as error:
            damage = error
    else:
        raise damage from None
    reader.close()
    finish([buffer for _, buffer in room], what)
    if isinstance(x, State):
        x._take(content.fields, rest_of(reader.index))
    else:
        for field in content.fields:
            field.finish()
    for field in content.fields:
        field.loaded()
    return {field.name: field.value for field in content.fields if field.is_replaced}


def _fields(x, trust, what):
    if isinstance(x, State):
        return x._fields(what)
    if not isinstance(x, dict) or not x or not all(type(name) is str and name for name in x):
        kind = f"a {type(x).__name__}" if not isinstance(x, dict) else f"a dict with the keys {list(x)[:5]}"
        raise TypeError(f"{what}: {kind}; expected a State, or a dict of fields by name, such as {{'model': model}}")
    return fields_of(x, flag(trust, f"{what}: trust"), what)


def _candidates(session, path):
    """The checkpoint itself, or those of the folder that rank 0 sees, newest first."""
    found = [one["path"] for one in list_of(path)] if _is_folder_of_many(path) else []
    return opening.gathered(session, "candidates", found or [path])[0]


def _is_folder_of_many(path):
    return os.path.isdir(path) and not os.path.exists(os.path.join(path, "index.json"))
