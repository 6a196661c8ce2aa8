"""The operations and codecs of the user that a session has. The library calls their functions as long as it lives."""

from horo._arguments import encoded
from horo._native import quick


class Registrations:
    """The part of Session that registers them."""

    def __init__(self):
        super().__init__()
        self._callbacks = []  # each horo_op and horo_codec that the library was given: it may keep its pointers
        self._registered = {}  # ("op" or "codec", name): the one that it has taken, in order

    def register_op(self, name, op):
        """Registers a horo_op, and keeps it alive as long as the session."""
        self._register("op", name, op, quick.horo_register_op)

    def register_codec(self, name, codec):
        self._register("codec", name, codec, quick.horo_register_codec)

    def _register(self, kind, name, made, register):
        self._callbacks.append(made)  # before the call: an interrupt may arrive right after it
        self._check(register(self.pointer, encoded(name, f"register_{kind}: name"), made))
        self._registered[kind, name] = made

    def take_callbacks(self, before):
        """Registers the operations and codecs of a session that has ended, of this process."""
        for (kind, name), made in before._registered.items():
            getattr(self, f"register_{kind}")(name, made)
