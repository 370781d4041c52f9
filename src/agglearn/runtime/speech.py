"""Words for the one who is spoken to: a Python user is told of arguments, a shell user of options.

An error says what to do about it. What that is called depends on the side that asked: ``max_modalities`` is
an argument here and ``--max-modalities`` there. Messages write ``{option("max_modalities")}`` and are right
on both sides; the command line says, around each run, that it is the one speaking.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_in_shell = False


@contextmanager
def speaking_to_shell() -> Iterator[None]:
    """In here messages name options of the command line. A process has one side at a time."""
    global _in_shell
    before, _in_shell = _in_shell, True
    try:
        yield
    finally:
        _in_shell = before


def option(name: str, value: str | None = None) -> str:
    """What an option is called: ``max_modalities=20``, or ``--max-modalities 20``."""
    if _in_shell:
        flag = f"--{name.replace('_', '-')}"
        return flag if value is None else f"{flag} {value}"
    return name if value is None else f"{name}={value}"


def words(*, python: str, shell: str) -> str:
    """One phrase or the other, where the two sides do a thing in different ways."""
    return shell if _in_shell else python
