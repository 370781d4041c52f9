"""Values and numbers as someone else wrote them, to codes and counts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agglearn.errors import InputError
from agglearn.records.learn import ColumnNote, learn_feature
from agglearn.records.options import Coding
from agglearn.records.survey import ColumnSurvey
from agglearn.runtime.speech import option
from agglearn.schema.columns import as_numbers, as_text, distinct, one_array
from agglearn.schema.features import MAX_MODALITIES, Feature
from agglearn.schema.rules import Codes, code_type
from agglearn.schema.schema import Schema
from agglearn.tables.table import LARGEST, Array, Scope

MOST_VALUES = MAX_MODALITIES - 2
"""Of a feature, besides one for the rarer and one for the missing."""

_LARGEST_EXACT_FLOAT = 2.0**53


def read_numbers(column: Any, name: str, path: Path, rows_before: int) -> Array:
    """Numbers of a column: integers where all are whole, else floats."""
    array = one_array(column)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        with contextlib.suppress(pa.ArrowInvalid):
            array = pc.utf8_trim_whitespace(array).cast(pa.int64())
    if pa.types.is_integer(array.type) and not array.null_count:
        return np.asarray(array.cast(pa.int64()).to_numpy())
    numbers, bad = as_numbers(array)
    wrong = np.flatnonzero(bad | ~(np.abs(numbers) <= LARGEST))
    if len(wrong):
        row = int(wrong[0])
        text = as_text(one_array(column).slice(row, 1))[0].as_py()
        raise InputError(
            f"{path}: column {name!r} has {'no value' if not text else repr(text)} in row "
            f"{rows_before + row + 1}, where a number{'' if bad[row] else ' up to 2⁶³'} is needed"
        )
    whole = (numbers == np.floor(numbers)) & (np.abs(numbers) < _LARGEST_EXACT_FLOAT)
    return numbers.astype(np.int64) if whole.all() else numbers


def refuse_fractions(numbers: Sequence[Array], names: Sequence[str], path: Path, rows_before: int) -> None:
    """Refuse fractions in tables without noise: most often a rate where a sum belongs."""
    for array, name in zip(numbers, names, strict=True):
        odd = np.flatnonzero(array != np.floor(array))
        if not len(odd):
            continue
        row, value = rows_before + int(odd[0]) + 1, float(array[odd[0]])
        rate = name != names[0] and bool(((array >= 0) & (array <= 1)).all())
        remedy = (
            "it looks like a rate, and the sum of the label is needed: multiply it by the count"
            if rate
            else f"exact tables hold whole numbers: say what was done to them with {option('noise')}"
        )
        raise InputError(f"{path}: column {name!r} has {value:g} in row {row}; {remedy}")


def is_gap(column: Any) -> bool:
    """Whether a column has a row without a value."""
    array = one_array(column)
    if array.null_count:
        return True
    texts = array.dictionary if pa.types.is_dictionary(array.type) else array
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        return False
    return bool(pc.any(pc.is_in(texts, pa.array(["", "NULL", "null", "\\N"], texts.type))).as_py())


def encode(feature: Feature, column: Any) -> Codes:
    """Codes of values written as the modality's text, or as they were in the records."""
    values, index = distinct(column)
    texts = as_text(values).to_pylist()
    raw = feature.rule.encode(values)
    codes: Codes = np.empty(len(texts) + 1, code_type(feature.n_modalities))
    codes[-1] = feature.missing_code  # index -1
    for i, text in enumerate(texts):
        absent = feature.missing_code if not text else raw[i]
        codes[i] = feature.code_of.get(text, absent)
    return codes[index]


class Vocabulary:
    """Values of a feature and how many records have each, as far as tables tell."""

    def __init__(self, name: str) -> None:
        self._survey = ColumnSurvey(name)

    def add(self, column: Any, counts: Array) -> None:
        """Add values with their counts."""
        values, index = distinct(column)
        n_missing = int((index < 0).sum())
        totals = np.bincount(index[index >= 0], weights=counts[index >= 0], minlength=len(values))
        # Noise may take a count below zero; the value is there all the same.
        weights = np.maximum(np.rint(totals), 1).astype(np.int64)
        present = np.bincount(index[index >= 0], minlength=len(values)) > 0  # of all that a dictionary lists
        texts, weights = as_text(values).filter(pa.array(present)), weights[present]
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
        if n_missing:
            texts = pa.concat_arrays([texts, pa.nulls(1, pa.string())])
            weights = np.append(weights, n_missing)
        self._survey.add_counts(texts, weights)

    def feature(self, max_modalities: int) -> tuple[Feature, ColumnNote]:
        """The feature, and a note about it."""
        name = self._survey.name
        coding = Coding(
            categorical=(name,), max_modalities=min(max_modalities, MOST_VALUES), min_modality_count=1
        )
        feature, note = learn_feature(self._survey, coding)
        folded = note.why.removeprefix("as told")
        return feature, replace(note, missing=0, why=f"the values of its tables{folded}")


class Unknown:
    """How many records have a value that a feature does not know."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._counts: dict[tuple[str, Scope], float] = {}

    def add(self, scope: Scope, codes: Sequence[Codes], numbers: Array) -> None:
        """Add the rows of a table."""
        for name, column in zip(scope, codes, strict=True):
            unknown: npt.NDArray[np.bool_] = column == self._schema.feature(name).n_modalities
            if unknown.any():
                n = float(numbers[0, unknown].sum())
                self._counts[name, scope] = self._counts.get((name, scope), 0.0) + n

    def by_feature(self) -> dict[str, float]:
        """The greatest number that any table has, for each feature that has some."""
        found: dict[str, float] = {}
        for (name, _), n in self._counts.items():
            found[name] = max(found.get(name, n), n)
        return found
