"""Rows of a GROUP BY into tables: a row says which cell, how many records and how many positives.

Whoever counted (a database, a clean room, a file that someone sent), the rows end up in the same cells
that :mod:`.tally` counts records into.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agglearn.aggregation.tally import require_memory, require_ranks
from agglearn.schema.features import Codes
from agglearn.schema.schema import Schema
from agglearn.tables.cells import Cells, ranks, seen_cells
from agglearn.tables.noise import Noise
from agglearn.tables.scopes import cells_of, shape_of
from agglearn.tables.table import Array, Scope, Table

_FEW = 1 << 16  # rows that are kept as they came


class Groups:
    """A table to which rows of a GROUP BY are added.

    Numbers stay integers until the first fractional one. What is kept are the rows, so that memory follows
    from the cells that were seen.
    """

    def __init__(self, scope: Scope, schema: Schema, hash_size: int | None = None) -> None:
        self.scope = scope
        self._cards = shape_of(scope, schema)
        self._hashed: Cells | None = cells_of(scope, schema, hash_size)
        if self._hashed.apart:
            require_ranks(scope, schema)
            self._hashed = None
        self._seen: Array = np.zeros(0, np.int64)
        self._numbers: Array = np.zeros((1 + len(schema.labels), 0), np.int64)
        self._unknown: Array = np.zeros(1 + len(schema.labels), np.int64)
        self._waiting: list[tuple[Array, Array]] = []

    def add(self, codes: Sequence[Codes], numbers: Array) -> None:
        """Add rows: the codes of each feature, then the count and the sum of each label, a row each."""
        if not np.issubdtype(numbers.dtype, np.integer):
            self._numbers = self._numbers.astype(np.float64, copy=False)
            self._unknown = self._unknown.astype(np.float64, copy=False)
        known = np.ones(numbers.shape[1], bool)
        for column, card in zip(codes, self._cards, strict=True):
            known &= column < card
        self._unknown += numbers[:, ~known].sum(axis=1)
        rows = np.stack([column[known] for column in codes])
        found = self._hashed.find(rows) if self._hashed else ranks(self._cards, rows)
        self._waiting.append((found, numbers[:, known]))
        # Sorted in when there are as many as before: each row is then sorted a few times in all.
        if sum(len(cells) for cells, _ in self._waiting) > max(len(self._seen), _FEW):
            self._sort_in()

    def _sort_in(self) -> None:
        """Add up the rows of each cell."""
        found, numbers = zip((self._seen, self._numbers), *self._waiting, strict=True)
        self._waiting = []
        self._seen, to = np.unique(np.concatenate(found), return_inverse=True)
        require_memory([self.scope], [len(self._seen)], 2 * (1 + len(self._numbers)))
        added = np.concatenate(numbers, axis=1).astype(self._numbers.dtype, copy=False)
        self._numbers = np.zeros((len(added), len(self._seen)), added.dtype)
        for total, layer in zip(self._numbers, added, strict=True):
            np.add.at(total, to.reshape(-1), layer)

    def table(self, noise: Noise | None = None, *, absent_is_zero: bool = True) -> Table:
        """The table; where an absent row does not mean zero, the cells without one are not measured."""
        self._sort_in()
        cells = self._hashed or seen_cells(self._cards, self._seen)
        dtype = self._numbers.dtype if noise is None else np.dtype(np.float64)
        at = np.arange(len(self._seen)) if cells.tied else self._seen
        numbers = np.zeros((len(self._numbers), cells.size), dtype)
        numbers[:, at] = self._numbers
        measured = None
        if not (absent_is_zero or len(self._seen) == cells.size):
            measured = np.zeros(cells.size, bool)
            measured[at] = True
        return Table(
            features=self.scope,
            counts=numbers[0].reshape(cells.shape),
            sums=numbers[1:].reshape(-1, *cells.shape),
            unknown=self._unknown.astype(dtype),
            cells=cells,
            noise=noise,
            measured=None if measured is None else measured.reshape(cells.shape),
        )
