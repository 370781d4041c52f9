"""Records as Python programs hold them: one as a dict, several as a list of dicts, numbers in an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from agglearn.errors import InputError


def is_record(data: Any) -> bool:
    """Whether a dict is one record, rather than columns."""
    return isinstance(data, Mapping) and bool(data) and all(_is_scalar(value) for value in data.values())


def are_records(data: Any) -> bool:
    """Whether this is a list of records."""
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(row, Mapping) for row in data)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | bytes) or value is None or np.ndim(value) == 0


def table_of_records(records: Sequence[Mapping[str, Any]]) -> Any:
    """An Arrow table of records, a row each; a column that a record lacks is missing in it."""
    names = list(dict.fromkeys(str(name) for record in records for name in record))
    columns = {}
    for name in names:
        values = [_plain(record.get(name)) for record in records]
        try:
            columns[name] = pa.array(values, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):  # a number here, a text there
            columns[name] = pa.array([None if v is None else str(v) for v in values], pa.string())
    return pa.table(columns)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def array_names(n: int) -> list[str]:
    """What the columns of an array are called."""
    return [f"x{i}" for i in range(n)]


def table_of_array(array: Any, names: Sequence[str] | None = None) -> Any:
    """An Arrow table of a two-dimensional array, a column each."""
    found = np.asarray(array)
    if found.ndim != 2:
        raise InputError(
            f"an array of {found.ndim} dimensions was given: Reshape your data, a row for each record and a "
            "column for each feature"
        )
    columns = {}
    for name, column in zip(names or array_names(found.shape[1]), found.T, strict=True):
        plain = np.ascontiguousarray(column)
        columns[name] = pa.array(plain.tolist() if plain.dtype == object else plain, from_pandas=True)
    return pa.table(columns)
