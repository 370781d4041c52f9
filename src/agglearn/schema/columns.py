"""Raw Arrow columns as text or as numbers, whatever type they arrive in.

Records of one schema come as CSV text today and as a typed frame tomorrow. Everything downstream
compares values by their canonical text (``5``, ``true``, ``2024-01-31``), which does not depend on
the type that carried them, and numbers that are text by their key (:mod:`.values`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agglearn.errors import InputError
from agglearn.runtime.arrays import to_numpy
from agglearn.runtime.speech import option
from agglearn.schema.values import WHOLE_DIGITS, float_text

Column: TypeAlias = Any  # pa.Array or pa.ChunkedArray: pyarrow ships no types

_LARGEST_EXACT_FLOAT = 2.0**53
_ZONE = r"Z|[+-]\d\d:?\d\d|"
_UNFIT = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
    pa.types.is_interval,
)


def check_unique(names: Sequence[str], where: str) -> None:
    """Refuse columns of the same name; ``where`` says whose they are."""
    twice = repeated(names)
    if twice is not None:
        raise InputError(f"{where}: column {twice!r} stands twice; rename one of them")


def repeated(names: Sequence[str]) -> str | None:
    """The first name that stands there again, if any does."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def value_type(arrow_type: Any) -> str:
    """Our word for the type of a column: how its values are written, and read back."""
    t = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    if pa.types.is_boolean(t):
        return "boolean"
    if pa.types.is_integer(t) or pa.types.is_duration(t):
        return "integer"
    if pa.types.is_floating(t) or pa.types.is_decimal(t):
        return "float"
    if pa.types.is_date(t):
        return "date"
    if pa.types.is_time(t):
        return "time"
    if pa.types.is_timestamp(t):
        return "timestamp"
    return "string"


def check_supported(name: str, arrow_type: Any) -> None:
    """Refuse a column whose values are neither scalars of a known kind nor text."""
    arrow_type = plain_type(arrow_type)
    t = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    if pa.types.is_nested(t) or any(unfit(t) for unfit in _UNFIT):
        raise InputError(
            f"column {name!r} has type {t}, which is neither a category nor a number: "
            f"leave it out with {option('exclude')}, or turn it into text"
        )


def plain_type(arrow_type: Any) -> Any:
    """The type that a column is read as: what wraps or merely stores values differently is taken off."""
    if isinstance(arrow_type, pa.BaseExtensionType):
        return (
            pa.string() if arrow_type.extension_name == "arrow.uuid" else plain_type(arrow_type.storage_type)
        )
    if pa.types.is_run_end_encoded(arrow_type):
        return plain_type(arrow_type.value_type)
    if pa.types.is_string_view(arrow_type) or pa.types.is_null(arrow_type):
        return pa.string()
    if pa.types.is_dictionary(arrow_type) and plain_type(arrow_type.value_type) != arrow_type.value_type:
        return plain_type(arrow_type.value_type)
    return arrow_type


def plain_column(column: Column) -> Any:
    """The column in its plain type: UUID as text, JSON as its text, views and runs as what they show."""
    array = one_array(column)
    wanted = plain_type(array.type)
    if wanted == array.type:
        return column
    if isinstance(array.type, pa.BaseExtensionType):
        if array.type.extension_name == "arrow.uuid":
            return pa.array([None if v is None else str(v) for v in array.to_pylist()], pa.string())
        return plain_column(array.storage)
    if pa.types.is_run_end_encoded(array.type):
        return plain_column(pc.run_end_decode(array))
    if pa.types.is_dictionary(array.type):
        return plain_column(plain_column(array.dictionary).take(array.indices))
    return array.cast(wanted)


def plain_batch(batch: Any) -> Any:
    """A record batch, each column in its plain type."""
    if all(plain_type(field.type) == field.type for field in batch.schema):
        return batch
    return pa.RecordBatch.from_arrays([plain_column(c) for c in batch.columns], names=batch.schema.names)


def one_array(column: Column) -> Any:
    """The column as a single Arrow array."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column


def distinct(column: Column) -> tuple[Any, npt.NDArray[np.int64]]:
    """Distinct values of a column, and for each record which of them it has (-1: missing)."""
    array = one_array(column)
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    indices = array.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(-1)
    return array.dictionary, to_numpy(indices).astype(np.int64, copy=False)


def as_text(values: Column) -> Any:
    """Canonical text of each value, null where missing."""
    array = one_array(values)
    t = array.type
    if pa.types.is_dictionary(t):
        return as_text(array.dictionary_decode())
    if pa.types.is_floating(t):
        return _float_text(array.cast(pa.float64()))
    texts = array.cast(pa.string())
    if pa.types.is_timestamp(t) or pa.types.is_time(t) or pa.types.is_decimal(t):
        # The unit and the scale are the engine's choice: the value alone must decide the text.
        texts = pc.replace_substring_regex(texts, rf"(\.\d*[1-9])0+({_ZONE})$", r"\1\2")
        texts = pc.replace_substring_regex(texts, rf"\.0+({_ZONE})$", r"\1")
    return texts


def _float_text(array: Any) -> Any:
    missing = pc.or_kleene(array.is_null(), pc.is_nan(array))
    array = pc.if_else(missing, pa.scalar(None, pa.float64()), array)
    # Integers with gaps arrive as floats from pandas: 5.0 must still be the category "5".
    size = pc.abs(array)
    whole = pc.and_(pc.equal(pc.floor(array), array), pc.less(size, _LARGEST_EXACT_FLOAT))
    integers = pc.if_else(whole, array, pa.scalar(None, pa.float64())).cast(pa.int64())
    texts = pc.coalesce(integers.cast(pa.string()), array.cast(pa.string()))
    large = pc.and_(pc.greater_equal(size, _LARGEST_EXACT_FLOAT), pc.less(size, WHOLE_DIGITS))
    if not pc.any(large).as_py():
        return texts
    written = [float_text(v) if v is not None else None for v in pc.if_else(large, array, None).to_pylist()]
    return pc.coalesce(pa.array(written, pa.string()), texts)


def as_numbers(column: Column) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Values as floats (NaN where missing), and a mask of those that are not numbers."""
    array = one_array(column)
    if pa.types.is_dictionary(array.type):
        dictionary, index = distinct(array)
        numbers, bad = as_numbers(dictionary)
        numbers, bad = np.append(numbers, np.nan), np.append(bad, False)  # index -1: missing
        return numbers[index], bad[index]
    if value_type(array.type) == "string" and not pa.types.is_null(array.type):
        return _parse(array.cast(pa.large_string()))
    if pa.types.is_duration(array.type):
        array = array.cast(pa.int64())
    if pa.types.is_temporal(array.type):
        return np.full(len(array), np.nan), array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    return _floats(array.cast(pa.float64(), safe=False)), np.zeros(len(array), bool)


def _floats(array: Any) -> npt.NDArray[np.float64]:
    """Numbers of an Arrow array of floats, NaN where one is missing."""
    return to_numpy(array.fill_null(np.nan) if array.null_count else array)


def _parse(array: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    trimmed = pc.utf8_trim_whitespace(array)
    try:
        return _floats(trimmed.cast(pa.float64())), np.zeros(len(array), bool)
    except pa.ArrowInvalid:
        pass
    dictionary, index = distinct(trimmed)
    values = np.full(len(dictionary) + 1, np.nan)  # the last one is the missing value
    bad = np.zeros(len(dictionary) + 1, bool)
    for i, text in enumerate(dictionary.to_pylist()):
        try:
            values[i] = float(text)
            bad[i] = "_" in text  # Python reads 1_000, and nobody writes it
        except ValueError:
            bad[i] = True
    return values[index], bad[index]


def small_integers(array: Any) -> tuple[int, npt.NDArray[np.int64]] | None:
    """The least of integers without gaps, and how far above it each is; None where they reach far.

    What is asked of such numbers can be looked up, once for each number there could be.
    """
    plain = pa.types.is_integer(array.type) and not pa.types.is_uint64(array.type)
    if not plain or array.null_count or not len(array):
        return None
    numbers = to_numpy(array)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low >= len(array):
        return None
    return low, numbers.astype(np.int64) - low
