"""When two writings are one value.

``0``, ``0.0``, ``-0`` and ``0e+00`` are one number, and ``True``, ``true`` and ``1`` one answer, whoever
wrote them: a CSV file, a column of integers with gaps, a database that has them as doubles. Such writings
share a *key*. ``007`` has none: no number is written with a leading zero, so it is a code, and stays one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import isinf
from typing import TypeVar

import pyarrow as pa

# An exponent has a sign, as every tool writes it: 12e4 may be a piece of a hash.
_NUMBER = re.compile(
    r"(?P<whole>-?(?:0|[1-9][0-9]{0,400}|(?=\.[0-9])))(?:\.(?P<part>[0-9]{0,400}))?(?P<power>[eE][+-][0-9]{1,3})?"
)
_TRUTHS = {"true": "1", "false": "0"}
_WORDS = {"1": "true", "0": "false"}
WHOLE_DIGITS = 1e22
"""A float without a fraction is written in digits up to here: beyond, doubles miss powers of ten."""

_Coded = TypeVar("_Coded")


def key(text: str) -> str | None:
    """The one form of a number or an answer, however it is written; None for any other text."""
    text = text.strip()
    return number_text(text) or _TRUTHS.get(text.lower())


def same_value(a: str, b: str) -> bool:
    """Whether two texts write one value; blanks around them are nothing."""
    common = key(a)
    return a.strip() == b.strip() or (common is not None and common == key(b))


def number_text(text: str) -> str | None:
    """The canonical text of a number; None where a text is not written as one."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    if found["power"] is None and not (found["part"] or "").strip("0"):
        whole = found["whole"]
        return "0" if whole in ("", "-", "-0") else whole  # exact, however many digits
    value = float(text)
    return None if isinf(value) else float_text(value)


def is_whole(number: str) -> bool:
    """Whether the canonical text of a number is that of an integer."""
    return number.lstrip("-").isdigit()


def float_text(value: float) -> str:
    """The canonical text of a float: without a fraction if it has none, else as short as tells it apart."""
    if value == int(value) and abs(value) < WHOLE_DIGITS:
        return str(int(value))
    text: str = pa.scalar(value).cast(pa.string()).as_py()
    return text


def by_key(codes: Mapping[str, _Coded]) -> dict[str, _Coded]:
    """What stands behind texts, by their keys; where texts share a key, nothing but the text tells."""
    found: dict[str, _Coded] = {}
    shared: set[str] = set()
    for text, code in codes.items():
        common = key(text)
        if common is not None:
            if common in found:
                shared.add(common)
            found[common] = code
    return {k: code for k, code in found.items() if k not in shared}


def of_one_kind(texts: Sequence[str]) -> tuple[list[str], str] | None:
    """Texts that are all numbers, or all answers, in their canonical form, and what type they are of.

    None where some are other texts, which are then as they are.
    """
    plain = [text.strip() for text in texts]
    if any(text.lower() in _TRUTHS for text in plain):
        keys = [key(text) for text in plain]
        words = [_WORDS[k] for k in keys if k in _WORDS]
        return (words, "boolean") if len(words) == len(plain) else None
    numbers = [n for n in map(number_text, plain) if n is not None]
    if not plain or len(numbers) < len(plain):
        return None
    return numbers, "integer" if all(map(is_whole, numbers)) else "float"


def spellings(texts: Iterable[str]) -> list[str]:
    """The texts, and how else databases write them: a whole number as a float, an answer as a number."""
    found: dict[str, None] = {}
    for text in texts:
        found[text] = None
        common = key(text)
        if common is None:
            continue
        if is_whole(common):
            found |= dict.fromkeys((common, f"{common}.0"))
        word = text.strip().lower()
        if word in _TRUTHS:
            found |= dict.fromkeys((word, word.title(), word.upper()))
    return list(found)
