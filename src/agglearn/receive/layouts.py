"""Files that hold several tables at once, as clean rooms give them, taken apart into one table each.

- *long*: ``feature_1, value_1, feature_2, value_2, count, y``: a row names its features;
- *named*: a column ``table`` names the features of each row's table (``a*b``);
- *grouping sets*: a column for each feature, and none where a row is not grouped by it; ``grouping_id``, if
  there is one, says by a bit for each feature (the first one highest) which those are.

Without ``grouping_id`` an empty value may also be a missing one. Every table counts the same records, so rows
that leave out other features have one total if they are tables of their own; where that is not so and not
otherwise clear, the file is refused rather than guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agglearn.errors import InputError, TableError
from agglearn.runtime.memory import require
from agglearn.schema.columns import as_text, one_array
from agglearn.tables.table import Array, Scope

GROUPING_NAMES = ("grouping_id", "grouping__id", "groupingid", "grouping_set")
TABLE_NAMES = ("table", "table_name", "tablename")

_FEATURE = re.compile(
    r"(?:feature|variable|dimension|column|attribute)(?:_?name)?[_ .-]?(\d*)", re.IGNORECASE
)
_VALUE = re.compile(r"(?:value|level|category|modality)[_ .-]?(\d*)", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*[*×,;|&+]\s*|\s+x\s+")
_NONE = ("", "NULL", "null", "\\N")
_MOST_TABLES = 100_000
_AS_LARGE = 1.25  # totals of tables of the same records, where cells are withheld or noisy


@dataclass(frozen=True)
class Part:
    """The rows of one table of a file: a column for each feature, and the numbers."""

    scope: Scope
    columns: Any  # pa.Table
    numbers: Array


def long_columns(names: Sequence[str]) -> list[tuple[str, str]] | None:
    """Which columns name features and which hold their values, if the columns are those of a long file."""
    features = {m[1]: n for n in names if (m := _FEATURE.fullmatch(n))}
    values = {m[1]: n for n in names if (m := _VALUE.fullmatch(n))}
    if not features or features.keys() != values.keys():
        return None
    return [(features[number], values[number]) for number in sorted(features, key=lambda s: (len(s), s))]


def grouping_column(names: Sequence[str]) -> str | None:
    """The column that says what rows are grouped by, if there is one."""
    return next((n for n in names if n.casefold() in GROUPING_NAMES), None)


def table_column(names: Sequence[str]) -> str | None:
    """The column that may name the table of each row."""
    return next((n for n in names if n.casefold() in TABLE_NAMES), None)


def split_long(path: Path, rows: Any, numbers: Array, pairs: Sequence[tuple[str, str]]) -> list[Part]:
    """The tables of a long file."""
    _affordable(path, rows)
    texts = [_texts(rows[name]) for name, _ in pairs]
    parts: dict[frozenset[str], Scope] = {}
    found = []
    for which, members in _groups(np.stack(texts, axis=1)):
        held = [(text, value) for text, (_, value) in zip(which, pairs, strict=True) if text not in _NONE]
        scope = tuple(text for text, _ in held)
        if not scope:
            continue  # the total of all
        if len(set(scope)) < len(scope):
            raise InputError(f"{path} names the feature {scope[0]!r} twice in one row")
        other = parts.setdefault(frozenset(scope), scope)
        if other != scope:
            told = f"{' × '.join(other)} and as {' × '.join(scope)}"
            raise TableError(f"{path} has one table as {told}: keep one of them")
        taken = rows.take(pa.array(members))
        found.append(Part(scope, pa.table({f: taken[v] for f, v in held}), numbers[:, members]))
    return found


def split_named(
    path: Path, rows: Any, numbers: Array, name: str, features: Sequence[str]
) -> list[Part] | None:
    """The tables of a file by the names in a column; None if these are not names of tables."""
    texts = _texts(rows[name])
    scopes: dict[str, Scope] = {}
    for text in np.unique(texts).tolist():
        scope = tuple(_BETWEEN.split(text.strip())) if text not in _NONE else ()
        if not set(scope) <= set(features):
            return None
        scopes[text] = tuple(f for f in features if f in scope)
    _affordable(path, rows)
    found = []
    for (text,), members in _groups(texts[:, None]):
        if scopes[text]:
            part = rows.select(list(scopes[text])).take(pa.array(members))
            found.append(Part(scopes[text], part, numbers[:, members]))
    return found


def split_by_id(path: Path, rows: Any, numbers: Array, name: str, features: Sequence[str]) -> list[Part]:
    """The tables of grouping sets, by the number that says what a row is not grouped by."""
    from agglearn.schema.columns import as_numbers

    ids, bad = as_numbers(rows[name])
    if bad.any() or np.isnan(ids).any() or ((ids < 0) | (ids >= 2.0 ** len(features))).any():
        raise InputError(
            f"{path}: column {name!r} must hold GROUPING_ID({', '.join(features)}), whole numbers below "
            f"2^{len(features)}"
        )
    bits = [len(features) - 1 - i for i in range(len(features))]  # the first feature has the highest bit
    grouped = np.stack([(ids.astype(np.int64) >> b) & 1 == 0 for b in bits], axis=1)
    for i, feature in enumerate(features):
        odd = np.flatnonzero(~grouped[:, i] & _given(rows[feature]))
        if len(odd):
            raise InputError(
                f"{path}: row {odd[0] + 1} has a value of {feature!r}, which its {name} says it is not "
                f"grouped by: make it GROUPING_ID({', '.join(features)}), in the order of the columns"
            )
    _affordable(path, rows)
    return _by_mask(rows, numbers, grouped, features)


def split_sets(
    path: Path, rows: Any, numbers: Array, features: Sequence[str], exact: bool
) -> list[Part] | None:
    """The tables of grouping sets that empty values alone tell apart; None for one with missing values."""
    given = np.stack([_given(rows[f]) for f in features], axis=1)
    patterns, inverse = np.unique(given, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    if len(patterns) < 2:
        return None
    totals = np.stack([np.bincount(inverse, weights=row, minlength=len(patterns)) for row in numbers])
    whole = bool(patterns.all(axis=1).any())
    same = np.allclose(totals, totals[:, :1], rtol=1e-9, atol=1e-9)
    near = totals[0] * _AS_LARGE >= totals[0].max()
    if same or (not whole and not exact and near.all()):
        _affordable(path, rows)
        return _by_mask(rows, numbers, given, features)
    if whole and not near[~patterns.all(axis=1)].any():
        return None  # a few records lack a value
    raise InputError(
        f"{path}: an empty value may be a missing one, or of a column that a row is not grouped by (GROUPING "
        "SETS), and the totals do not tell: add a column grouping_id, which is "
        f"GROUPING_ID({', '.join(features)}), and 0 in every row of a file of one table"
    )


def _by_mask(
    rows: Any, numbers: Array, grouped: npt.NDArray[np.bool_], features: Sequence[str]
) -> list[Part]:
    found = []
    for pattern, members in _groups(grouped):
        scope = tuple(f for f, there in zip(features, pattern, strict=True) if there)
        if scope:  # none: the total of all
            part = rows.select(list(scope)).take(pa.array(members))
            found.append(Part(scope, part, numbers[:, members]))
    return found


def _groups(keys: npt.NDArray[Any]) -> list[tuple[Any, npt.NDArray[np.int64]]]:
    """Rows with equal keys, in the order in which the keys first occur."""
    distinct, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(inverse.reshape(-1), kind="stable")
    counts = np.bincount(inverse.reshape(-1), minlength=len(distinct))
    members = np.split(order, np.cumsum(counts)[:-1])
    return [(distinct[k].tolist(), members[k]) for k in np.argsort(first, kind="stable").tolist()]


def _texts(column: Any) -> npt.NDArray[np.str_]:
    """Texts of a column, empty where there is none."""
    texts = pc.utf8_trim_whitespace(as_text(column)).fill_null("").to_pylist()
    return np.array(texts, dtype=np.str_)


def _given(column: Any) -> npt.NDArray[np.bool_]:
    """Where a column has a value."""
    texts = as_text(one_array(column))
    absent = pc.or_(texts.is_null(), pc.is_in(texts, pa.array(_NONE)))
    given: npt.NDArray[np.bool_] = ~absent.to_numpy(zero_copy_only=False).astype(bool)
    return given


def _affordable(path: Path, rows: Any) -> None:
    require(3 * rows.nbytes, f"{path}, which holds several tables,", "give one file a table")
