"""Whose process this is: what is ours alone may leave out what only others would miss."""

from __future__ import annotations

_ours = False


def take_over() -> None:
    """Say that this process is the command line's, and runs no code but ours."""
    global _ours
    _ours = True


def is_ours() -> bool:
    """Whether this process runs no code but ours."""
    return _ours
