"""A first look at the records: how often each value of each column occurs.

From that alone the kind of every column is inferred and its coding learnt (:mod:`.learn`). Counts are
exact up to :data:`KEPT` distinct values. Beyond that a column of numbers is thinned to evenly spaced
quantiles and any other column keeps its commonest values, so memory never depends on the records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agglearn.records.distinct import DistinctTexts
from agglearn.runtime.arrays import from_numpy, to_numpy
from agglearn.schema.columns import Column, as_numbers, as_text, one_array, small_integers, value_type

KEPT = 500_000


def _plain(values: Any, kind: str) -> Any:
    """Values as 64-bit numbers or as text, whatever width they came in."""
    if kind == "float" and not pa.types.is_decimal(values.type):  # which may hold more digits
        return pc.add(values.cast(pa.float64()), 0.0)  # -0.0 is the value 0.0
    if kind == "integer":
        try:
            return values.cast(pa.int64())
        except pa.ArrowInvalid:  # an unsigned integer that is too large
            pass
    return as_text(values)


def _in_order(numbers: npt.NDArray[np.float64], texts: list[str]) -> npt.NDArray[np.int64]:
    """Values by their number, and writings of one number by their text, whichever record came first."""
    order: npt.NDArray[np.int64] = np.argsort(numbers, kind="stable")
    if not np.any(numbers[order[1:]] == numbers[order[:-1]]):
        return order
    return np.array(sorted(range(len(texts)), key=lambda i: (numbers[i], texts[i])), np.int64)


@dataclass
class ColumnSurvey:
    """Values of one column and how often each occurs.

    Attributes
    ----------
    name
        The column.
    value_type
        Our word for its type; text from CSV files is ``string`` whatever it says.
    rows, missing
        Records seen, and those without a value.
    exact
        Whether every distinct value was kept.
    told_distinct
        Distinct values there are, where someone else has counted them.
    """

    name: str
    value_type: str = "string"
    rows: int = 0
    missing: int = 0
    exact: bool = True
    told_distinct: int = 0
    _values: list[Any] = field(default_factory=list)
    _counts: list[npt.NDArray[np.int64]] = field(default_factory=list)
    _pending: int = 0
    _seen: DistinctTexts = field(default_factory=DistinctTexts)  # where not all are kept

    def add(self, column: Column) -> None:
        """Count the values of a batch."""
        array = one_array(column)
        self.rows += len(array)
        if pa.types.is_floating(array.type):
            array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
        small = small_integers(array)
        if small is not None:
            low, above = small
            counts = np.bincount(above)
            values = from_numpy((np.flatnonzero(counts) + low).astype(np.int64))
            counts = counts[counts > 0]
        elif pa.types.is_dictionary(array.type):
            index = to_numpy(array.indices.drop_null())
            counts = np.bincount(index, minlength=len(array.dictionary))
            values = array.dictionary.take(from_numpy(np.flatnonzero(counts)))
            counts = counts[counts > 0]
        else:
            found = array.value_counts()
            values, counts = found.field("values"), to_numpy(found.field("counts"))
        self.add_counts(values, counts.astype(np.int64), records=0)
        # Nulls were left out of a dictionary's indices but not of value_counts.
        if pa.types.is_dictionary(array.type):
            self.missing += array.indices.null_count

    def add_counts(self, values: Any, counts: npt.NDArray[np.int64], records: int | None = None) -> None:
        """Add values that someone else counted."""
        self.rows += int(counts.sum()) if records is None else records
        if values.null_count:
            absent = values.is_null().to_numpy(zero_copy_only=False)
            self.missing += int(counts[absent].sum())
            values, counts = values.drop_null(), counts[~absent]
        if not len(values):
            return
        kind = value_type(values.type)
        self._hold([_plain(values, kind)], [counts], kind)

    def merge(self, other: ColumnSurvey) -> None:
        """Add what a survey of later records found."""
        self.rows += other.rows
        self.missing += other.missing
        self.exact &= other.exact
        self._seen.merge(other._seen)
        if other._values:
            self._hold(other._values, other._counts, other.value_type)

    def _hold(self, values: list[Any], counts: list[npt.NDArray[np.int64]], kind: str) -> None:
        if not self._values:
            self.value_type = kind
        elif kind != self.value_type:  # files of one data set may disagree
            self.value_type = "float" if {kind, self.value_type} == {"integer", "float"} else "string"
        self._values += values
        self._counts += counts
        self._pending += sum(map(len, counts))
        if self._pending > 2 * KEPT:
            self.compact()

    def compact(self) -> None:
        """Sum equal values, and thin them out if they are still too many."""
        if not self._pending:
            return
        values = self._values
        if len({v.type for v in values}) > 1:
            values = [v.cast(pa.float64()) if self.value_type == "float" else as_text(v) for v in values]
        # Not a table's group_by: that loads pyarrow's data sets, and pandas with them.
        coded = one_array(pa.chunked_array(values)).dictionary_encode()
        every = np.concatenate(self._counts)
        counts = np.zeros(len(coded.dictionary), np.int64)
        np.add.at(counts, to_numpy(coded.indices), every)
        values = coded.dictionary
        if len(values) > KEPT:
            self.exact = False
        if not self.exact and pa.types.is_string(values.type):
            self._seen.add(values)
        if len(values) > KEPT:
            values, counts = self._thin(values, counts)
        self._values, self._counts, self._pending = [values], [counts], 0

    def _thin(self, values: Any, counts: npt.NDArray[np.int64]) -> tuple[Any, npt.NDArray[np.int64]]:
        numbers, bad = as_numbers(values)
        if bad.any():
            keep = np.sort(np.argsort(-counts, kind="stable")[: KEPT // 2])
            return values.take(from_numpy(keep)), counts[keep]
        order = np.argsort(numbers, kind="stable")
        ranks = np.cumsum(counts[order])
        # Each group of neighbours of about equal weight is represented by its last value.
        group = (ranks - 1) * (KEPT // 2) // ranks[-1]
        last = np.append(np.flatnonzero(np.diff(group)), len(group) - 1)
        weights = np.diff(ranks[last], prepend=0)
        return values.take(from_numpy(order[last])), weights

    def texts(self) -> tuple[list[str], npt.NDArray[np.int64]]:
        """Distinct values as text with their counts, in order of value."""
        self.compact()
        if not self._values:
            return [], np.zeros(0, np.int64)
        texts = as_text(self._values[0]).to_pylist()
        counts = self._counts[0]
        if self.value_type in ("integer", "float") or self.numbers() is not None:
            order = _in_order(as_numbers(self._values[0])[0], texts)
        else:
            order = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
        return [texts[i] for i in order], counts[order]

    def numbers(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]] | None:
        """Distinct values as numbers with their counts, increasing; None if any is not a number."""
        if not self.n_not_numbers() and self._values:
            values, counts = self._parsed()
            return values, counts
        return None

    def n_not_numbers(self) -> int:
        """Records whose value is not a number."""
        self.compact()
        if not self._values or self.value_type in ("date", "time", "timestamp", "boolean"):
            return self.rows
        _, bad = as_numbers(self._values[0])
        return int(self._counts[0][bad].sum())

    def _parsed(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        values, bad = as_numbers(self._values[0])
        good = ~bad & np.isfinite(values)
        values, inverse = np.unique(values[good], return_inverse=True)
        counts = np.bincount(inverse, weights=self._counts[0][good]).astype(np.int64)
        return values, counts

    def some_numbers(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """As :meth:`numbers`, leaving out what is not a number."""
        self.compact()
        return self._parsed() if self._values else (np.zeros(0), np.zeros(0, np.int64))

    @property
    def n_distinct(self) -> int:
        """Distinct values kept."""
        self.compact()
        return len(self._counts[0]) if self._counts else 0

    @property
    def n_seen(self) -> int:
        """Distinct values there were, to a few percent where not all were kept."""
        return max(self.n_distinct, self.told_distinct, len(self._seen))
