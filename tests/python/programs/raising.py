"""What a block of a program is expected to raise."""

import contextlib


@contextlib.contextmanager
def raises(kind, *parts):
    """The block raises exactly this kind, and its text has all these parts."""
    try:
        yield
    except Exception as error:
        assert type(error) is kind, f"{type(error).__name__}: {error}; expected {kind.__name__}"
        missing = [part for part in parts if part.lower() not in str(error).lower()]
        assert not missing, f"{missing} not in: {error}"
    else:
        raise AssertionError(f"nothing was raised; expected {kind.__name__}")
