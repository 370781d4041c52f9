"""Frames of the caller's library: what is handed out is of the kind that was handed in."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from agglearn.errors import InputError

LIBRARIES = ("pandas", "polars", "pyarrow")


def library_of(data: Any) -> str | None:
    """The library of a frame, or None where it is no frame of a library we know."""
    home = type(data).__module__.partition(".")[0]
    return home if home in LIBRARIES else None


def make_frame(columns: Mapping[str, Any], library: str | None = None) -> Any:
    """A frame of named columns.

    Parameters
    ----------
    columns
        Arrays or lists of one length.
    library
        ``pandas``, ``polars`` or ``pyarrow``; by default the first of these that is installed.
    """
    import pyarrow as pa

    if library is None:
        library = next(name for name in LIBRARIES if find_spec(name) is not None)
    if library not in LIBRARIES:
        raise InputError(f"library {library!r} is not one of {', '.join(LIBRARIES)}")
    table = pa.table(dict(columns))
    if library == "pyarrow":
        return table
    if find_spec(library) is None:
        raise InputError(f"library {library!r} is not installed: install it, or ask for pyarrow")
    if library == "pandas":
        return table.to_pandas()
    import polars

    return polars.from_arrow(table)
