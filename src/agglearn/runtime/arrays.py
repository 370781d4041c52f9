"""Plain numbers and texts to Arrow and back.

Arrow's own ways ask first whether a thing might be of pandas, and load it to find out: half a second that a
small command should not spend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def to_numpy(column: Any) -> npt.NDArray[Any]:
    """The numbers of an Arrow column; of one with gaps or of another kind as Arrow would give them."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # no rows at all
        array = pa.array([], array.type)
    plain = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if plain and not array.null_count and len(array):
        numbers: npt.NDArray[Any] = np.from_dlpack(array)
        return numbers
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def from_numpy(numbers: npt.NDArray[Any]) -> Any:
    """An Arrow array of plain numbers."""
    flat = np.ascontiguousarray(numbers).reshape(-1)
    if flat.dtype.kind not in "iuf":
        return pa.array(flat)
    return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [None, pa.py_buffer(flat)])


def from_texts(texts: Sequence[str]) -> Any:
    """An Arrow array of texts."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))
