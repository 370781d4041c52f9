"""Options that are held in a dataclass: given by keyword, and bounded.

A set of options has one home, a frozen dataclass with their defaults and what each means. Functions take
it whole or by keywords; the command line reads its defaults there. The homes import nothing heavy, so that
the command line starts at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from agglearn.errors import InputError
from agglearn.runtime.speech import option

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

AUTO = "auto"  # what an option says where the choice is ours
MOST_SEED = 2**63 - 1  # what every generator takes, and any language writes

_LONG, _DIGITS = 10**15, 25  # numbers beyond are told by their first digits: some are too long for a float

_Options = TypeVar("_Options", bound="DataclassInstance")


def with_keywords(options: _Options, keywords: Mapping[str, Any], caller: str) -> _Options:
    """The options with some of them as given by name; ``caller`` has no others."""
    known = [f.name for f in fields(options)]
    for name in keywords:
        if name not in known:
            nearest = get_close_matches(name, known, n=1, cutoff=0)[0]
            raise TypeError(f"{caller}() has no option {name!r}: the nearest is {nearest!r}")
    return replace(options, **keywords)


_MOST_COUNT = 10**15  # of anything that is counted
BOUNDS: dict[str, tuple[float, float]] = {
    "bins": (2, 65_000),
    "cells": (1, 1e12),
    "chains": (2, 1e9),
    "checkpoint_every": (0, 1e9),
    "encoding_modalities": (2, 65_000),
    "floor": (0, 1e15),
    "hash_size": (2, 2**40),
    "iterations": (1, 1e7),
    "lambda_mu": (0, 1e12),
    "lambda_theta": (0, 1e12),
    "max_modalities": (2, 999_998),
    "min_count": (1, 1e15),
    "min_modality_count": (1, 1e15),
    "records": (1, 1e10),
    "rows": (0, 1e15),
    "size": (1, 8),
    "suggest": (0, 10_000),
    "test_share": (0, 1),
    "threads": (1, 1024),
    "tolerance": (0, 1e6),
}
"""The least and the most that an option of a number may be."""


def check_bounds(**values: float | str | None) -> None:
    """Refuse numbers that are out of bounds, or none at all; None and words are for others to judge."""
    for name, value in values.items():
        if value is None or isinstance(value, str):
            continue
        least, most = BOUNDS[name]
        if not least <= value <= most:  # nor is NaN
            side = f"at most {most:,.12g}" if value > least else f"at least {least:,.12g}"
            given = f"{value:.12g}" if abs(value) < _LONG or value != value else _shortened(str(value))
            raise InputError(f"{option(name, given)} is out of bounds: {side}")


def _shortened(number: str) -> str:
    """A number of any length, as a line has room for it."""
    return number if len(number) <= _DIGITS else f"{number[:_DIGITS]}…"


def at_least(least: int, what: str = "few", **values: int | None) -> None:
    """Refuse an option below the least value that makes sense; None is none."""
    for name, value in values.items():
        if value is not None and value < least:
            raise InputError(f"{option(name, _shortened(str(value)))} is too {what}: {least} is the least")
        if value is not None and value > _MOST_COUNT:
            raise InputError(
                f"{option(name, _shortened(str(value)))} is out of bounds: at most {_MOST_COUNT:,}"
            )


def as_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """Names of columns; a text alone is one of them, not its letters."""
    return (names,) if isinstance(names, str) else tuple(names)


def check_seed(seed: int) -> None:
    """Refuse a seed that no stream of numbers has."""
    if seed < 0:
        raise InputError(f"{option('seed')} {_shortened(str(seed))} must be at least 0")
    if seed > MOST_SEED:
        raise InputError(f"{option('seed')} {_shortened(str(seed))} must be at most {MOST_SEED}")
