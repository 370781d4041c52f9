"""Rows of a GROUP BY into tables: a row says which cell, how many records and how many positives.

Whoever counted (a database, a clean room, a file that someone sent), the rows end up in the same cells
that :mod:`.tally` counts records into.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agglearn.aggregation.tally import require_memory
from agglearn.schema.features import Codes
from agglearn.schema.schema import Schema
from agglearn.tables.cells import hashed_cells
from agglearn.tables.noise import Noise
from agglearn.tables.scopes import cells_of, shape_of
from agglearn.tables.table import Array, Scope, Table


def is_hashed(scope: Scope, schema: Schema, hash_size: int | None) -> bool:
    """Whether a table has so many cells that it is kept as buckets."""
    return hash_size is not None and cells_of(scope, schema) > hash_size


def require_table_memory(scopes: Sequence[Scope], schema: Schema, hash_size: int | None) -> None:
    """Refuse tables that would not fit in memory."""
    sizes = [
        (hash_size or 0) if is_hashed(scope, schema, hash_size) else cells_of(scope, schema)
        for scope in scopes
    ]
    require_memory(scopes, sizes, 2 + len(schema.labels))


class Groups:
    """A table to which rows of a GROUP BY are added.

    Numbers stay integers until the first fractional one.
    """

    def __init__(self, scope: Scope, schema: Schema, hash_size: int | None = None) -> None:
        self.scope = scope
        self._shape = shape_of(scope, schema)
        self._hash_size = hash_size if is_hashed(scope, schema, hash_size) else None
        n_cells = cells_of(scope, schema) if self._hash_size is None else self._hash_size
        self._numbers: Array = np.zeros((1 + len(schema.labels), n_cells), np.int64)
        self._unknown: Array = np.zeros(1 + len(schema.labels), np.int64)
        self._given = np.zeros(n_cells, bool)

    def add(self, codes: Sequence[Codes], numbers: Array) -> None:
        """Add rows: the codes of each feature, then the count and the sum of each label, a row each."""
        if not np.issubdtype(numbers.dtype, np.integer):
            self._numbers = self._numbers.astype(np.float64, copy=False)
            self._unknown = self._unknown.astype(np.float64, copy=False)
        known = np.ones(numbers.shape[1], bool)
        for column, card in zip(codes, self._shape, strict=True):
            known &= column < card
        self._unknown += numbers[:, ~known].sum(axis=1)
        cells = self._cells([column[known] for column in codes])
        for total, added in zip(self._numbers, numbers[:, known], strict=True):
            np.add.at(total, cells, added)
        self._given[cells] = True

    def _cells(self, codes: Sequence[Codes]) -> npt.NDArray[np.int64]:
        if self._hash_size is not None:
            hashed: npt.NDArray[np.int64] = hashed_cells(np.stack(codes), self._hash_size)
            return hashed
        cells = np.zeros(len(codes[0]), np.int64)
        for column, card in zip(codes, self._shape, strict=True):
            cells = cells * card + column
        return cells

    def table(self, noise: Noise | None = None, *, absent_is_zero: bool = True) -> Table:
        """The table; where an absent row does not mean zero, the cells without one are not measured."""
        shape = self._shape if self._hash_size is None else (self._hash_size,)
        numbers = self._numbers if noise is None else self._numbers.astype(np.float64)
        return Table(
            features=self.scope,
            counts=numbers[0].reshape(shape),
            sums=numbers[1:].reshape(-1, *shape),
            unknown=self._unknown if noise is None else self._unknown.astype(np.float64),
            hashed=self._hash_size is not None,
            noise=noise,
            measured=None if absent_is_zero or self._given.all() else self._given.reshape(shape),
        )
