"""Rows of a GROUP BY into tables: a row says which cell, how many records and how many positives.

Whoever counted (a database, a clean room, a file that someone sent), the rows end up in the same cells
that :mod:`.tally` counts records into.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agglearn.aggregation.tally import require_memory
from agglearn.schema.features import Codes
from agglearn.schema.schema import Schema
from agglearn.tables.noise import Noise
from agglearn.tables.scopes import cells_of, shape_of
from agglearn.tables.table import Array, Scope, Table


def require_table_memory(scopes: Sequence[Scope], schema: Schema, hash_size: int | None) -> None:
    """Refuse tables that would not fit in memory."""
    sizes = [cells_of(scope, schema, hash_size).size for scope in scopes]
    require_memory(scopes, sizes, 2 + len(schema.labels))


class Groups:
    """A table to which rows of a GROUP BY are added.

    Numbers stay integers until the first fractional one.
    """

    def __init__(self, scope: Scope, schema: Schema, hash_size: int | None = None) -> None:
        self.scope = scope
        self._cards = shape_of(scope, schema)
        self._cells = cells_of(scope, schema, hash_size)
        self._numbers: Array = np.zeros((1 + len(schema.labels), self._cells.size), np.int64)
        self._unknown: Array = np.zeros(1 + len(schema.labels), np.int64)
        self._given = np.zeros(self._cells.size, bool)

    def add(self, codes: Sequence[Codes], numbers: Array) -> None:
        """Add rows: the codes of each feature, then the count and the sum of each label, a row each."""
        if not np.issubdtype(numbers.dtype, np.integer):
            self._numbers = self._numbers.astype(np.float64, copy=False)
            self._unknown = self._unknown.astype(np.float64, copy=False)
        known = np.ones(numbers.shape[1], bool)
        for column, card in zip(codes, self._cards, strict=True):
            known &= column < card
        self._unknown += numbers[:, ~known].sum(axis=1)
        cells = self._cells.find(np.stack([column[known] for column in codes]))
        for total, added in zip(self._numbers, numbers[:, known], strict=True):
            np.add.at(total, cells, added)
        self._given[cells] = True

    def table(self, noise: Noise | None = None, *, absent_is_zero: bool = True) -> Table:
        """The table; where an absent row does not mean zero, the cells without one are not measured."""
        shape = self._cells.shape
        numbers = self._numbers if noise is None else self._numbers.astype(np.float64)
        return Table(
            features=self.scope,
            counts=numbers[0].reshape(shape),
            sums=numbers[1:].reshape(-1, *shape),
            unknown=self._unknown if noise is None else self._unknown.astype(np.float64),
            cells=self._cells,
            noise=noise,
            measured=None if absent_is_zero or self._given.all() else self._given.reshape(shape),
        )
