"""Characters on a terminal: which are harmless, how wide they are, where a line can break.

A name from the data may hold anything: an escape that moves the cursor or colours the screen, a line feed
that makes one line two, an override that turns the reading direction, half a surrogate that cannot be
printed. These are shown by their number, as ``repr`` would. Letters of East Asia take two places, and marks
that sit on the letter before them none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNSEEN = frozenset({"Cc", "Cs", "Zl", "Zp"})
_NO_PLACE = frozenset({"Mn", "Me", "Cf"})


def visible(text: str) -> str:
    """The text with whatever steers a terminal or a reader shown instead of done."""
    if text.isprintable():
        return text
    return "".join(_shown(c) for c in text)


def _shown(c: str) -> str:
    if c in _TURNING or unicodedata.category(c) in _UNSEEN:
        return c.encode("unicode_escape").decode("ascii")
    return c


def width(text: str) -> int:
    """How many places a text takes."""
    return len(text) if text.isascii() else sum(map(_places, text))


def _places(c: str) -> int:
    if unicodedata.category(c) in _NO_PLACE:
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def pad(text: str, places: int, *, left: bool = False) -> str:
    """The text filled up with spaces, behind it or (``left``) before it."""
    space = " " * (places - width(text))
    return space + text if left else text + space


def cut(text: str, places: int) -> str:
    """As much of a text as fits, with an ellipsis where there was more."""
    if width(text) <= places:
        return text
    head = _head(text, places - 1)
    return head + "…"


def _head(text: str, places: int) -> str:
    taken = 0
    for i, c in enumerate(text):
        taken += _places(c)
        if taken > places:
            return text[:i]
    return text


def wrap(text: str, places: int) -> list[str]:
    """The text in lines of at most so many places; a word that is longer than a line is broken."""
    if width(text) <= places:
        return [text]
    lines = [""]
    for word in text.split():
        for piece in _pieces(word, max(places, 2)):
            if not lines[-1]:
                lines[-1] = piece
            elif width(lines[-1]) + 1 + width(piece) <= places:
                lines[-1] += f" {piece}"
            else:
                lines.append(piece)
    return lines


def _pieces(word: str, places: int) -> Iterator[str]:
    while width(word) > places:
        head = _head(word, places)
        yield head
        word = word[len(head) :]
    yield word
